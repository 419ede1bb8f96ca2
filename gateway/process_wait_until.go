package gateway

import (
	"fmt"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/execwire/execwire/gateway/jsonrpc"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// untilParams say what process/wait waits for: one of exit, closed, pattern, port
// and idleMs.
type untilParams struct {
	Exit     *bool       `param:"exit,named"`
	Closed   *bool       `param:"closed,named"`
	Pattern  *string     `param:"pattern,named"`
	Stream   *waitStream `param:"stream,named"`
	AfterSeq *uint64     `param:"afterSeq,named"`
	Port     *uint16     `param:"port,named"`
	IdleMs   *uint64     `param:"idleMs,named"`
}

// waitStream is a stream of output as the client names it.
type waitStream execwirev1.OutputStream

func (w *waitStream) UnmarshalText(text []byte) error {
	switch string(text) {
	case "stdout":
		*w = waitStream(execwirev1.OutputStream_OUTPUT_STREAM_STDOUT)
	case "stderr":
		*w = waitStream(execwirev1.OutputStream_OUTPUT_STREAM_STDERR)
	case "pty":
		*w = waitStream(execwirev1.OutputStream_OUTPUT_STREAM_TERMINAL)
	default:
		return jsonrpc.UnknownVariant(string(text), "stdout", "stderr", "pty")
	}
	return nil
}

// condition is what a wait is for, by the name that the answer has for it.
type condition string

const (
	untilExit    condition = "exit"
	untilClosed  condition = "closed"
	untilPattern condition = "pattern"
	untilPort    condition = "port"
	untilIdle    condition = "idle"
)

// needsLife reports whether it cannot come to hold once the process has closed.
func (c condition) needsLife() bool { return c == untilPattern || c == untilPort }

// untilMembers are the members by the names that the core has for them.
var untilMembers = map[string]string{
	"pattern.regular_expression": "until.pattern",
	"pattern.stream":             "until.stream",
}

// problemOf is what the core says about a field, without its name.
func problemOf(err error) string {
	for _, detail := range status.Convert(err).Details() {
		if request, ok := detail.(*errdetails.BadRequest); ok && len(request.GetFieldViolations()) > 0 {
			return request.GetFieldViolations()[0].GetDescription()
		}
	}
	return status.Convert(err).Message()
}

// condition is the only one that the client gave; none is the exit.
func (u *untilParams) condition() (condition, *jsonrpc.Error) {
	if u == nil {
		return untilExit, nil
	}
	var given []condition
	for _, c := range []struct {
		condition condition
		isGiven   bool
	}{
		{untilExit, u.Exit != nil}, {untilClosed, u.Closed != nil}, {untilPattern, u.Pattern != nil},
		{untilPort, u.Port != nil}, {untilIdle, u.IdleMs != nil},
	} {
		if c.isGiven {
			given = append(given, c.condition)
		}
	}
	switch {
	case len(given) == 0:
		return "", invalidMember("until", "has no condition: give exit, closed, pattern, port or idleMs, or leave it out for the exit")
	case len(given) > 1:
		return "", invalidMember("until", fmt.Sprintf("has both %s and %s: give one condition", given[0], given[1]))
	}
	return given[0], u.check()
}

// set has the core wait for the condition.
func (u *untilParams) set(ask *execwirev1.WaitProcessRequest, c condition) {
	switch c {
	case untilExit:
		ask.Condition = &execwirev1.WaitProcessRequest_Exit{Exit: &execwirev1.WaitForExit{}}
	case untilClosed:
		ask.Condition = &execwirev1.WaitProcessRequest_Closed{Closed: &execwirev1.WaitForClosed{}}
	case untilPattern:
		ask.Condition = &execwirev1.WaitProcessRequest_Pattern{Pattern: u.pattern()}
	case untilPort:
		ask.Condition = &execwirev1.WaitProcessRequest_Port{Port: &execwirev1.WaitForPort{Port: uint32(*u.Port)}}
	case untilIdle:
		ask.Condition = &execwirev1.WaitProcessRequest_Idle{
			Idle: &execwirev1.WaitForIdle{Silence: durationpb.New(milliseconds(*u.IdleMs))}}
	}
}

func (u *untilParams) pattern() *execwirev1.WaitForPattern {
	pattern := &execwirev1.WaitForPattern{RegularExpression: *u.Pattern, AfterSeq: valueOr(u.AfterSeq, 0)}
	if u.Stream != nil {
		pattern.Stream = execwirev1.OutputStream(*u.Stream)
	}
	return pattern
}

// check refuses values that mean nothing.
func (u *untilParams) check() *jsonrpc.Error {
	switch {
	case u.Exit != nil && !*u.Exit:
		return invalidMember("until.exit", "is false: set it to true, or leave it out")
	case u.Closed != nil && !*u.Closed:
		return invalidMember("until.closed", "is false: set it to true, or leave it out")
	case u.Stream != nil && u.Pattern == nil:
		return invalidMember("until.stream", "is for a pattern: give one, or leave it out")
	case u.AfterSeq != nil && u.Pattern == nil:
		return invalidMember("until.afterSeq", "is for a pattern: give one, or leave it out")
	case u.Port != nil && *u.Port == 0:
		return invalidMember("until.port", "is 0: use 1 to 65535")
	case u.IdleMs != nil && *u.IdleMs == 0:
		return invalidMember("until.idleMs", "is 0: say how long the process must have been silent")
	}
	return nil
}
