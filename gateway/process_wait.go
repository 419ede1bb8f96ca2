package gateway

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/execwire/execwire/gateway/param"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/errorinfo"
	"github.com/execwire/execwire/internal/jsonrpc"
)

// waitParams is the parameters of process/wait.
type waitParams struct {
	onProcess
	Until     *untilParams `param:"until,optional"`
	TimeoutMs *uint64      `param:"timeoutMs,optional"`

	condition condition
}

func (p *waitParams) Check() (err *jsonrpc.Error) {
	p.condition, err = p.Until.condition()
	return err
}

// waitResult is the result of process/wait.
type waitResult struct {
	Met      *condition   `json:"met"`
	TimedOut bool         `json:"timedOut"`
	Exited   bool         `json:"exited"`
	ExitCode *int64       `json:"exitCode"`
	Closed   bool         `json:"closed"`
	Match    *matchResult `json:"match,omitempty"`
}

// matchResult is a match of a pattern.
type matchResult struct {
	Stream string `json:"stream"`
	Offset uint64 `json:"offset"`
	Chunk  []byte `json:"chunk"`
	Seq    uint64 `json:"seq"`
}

// run waits until the condition holds or cannot hold any more, or the timeout expires.
func (p *waitParams) run(ctx context.Context, r *request) (any, *jsonrpc.Error) {
	answer, err := p.wait(ctx, r)
	if err != nil {
		return nil, p.failure(err)
	}
	result := waitResult{
		Exited:   answer.GetProcess().GetExit() != nil,
		ExitCode: exitCodeOrNil(answer.GetProcess().GetExit()),
		Closed:   hasClosed(answer.GetProcess()),
	}
	if answer.GetSatisfied() {
		result.Met = &p.condition
	} else {
		result.TimedOut = !result.Closed || !p.condition.needsLife()
	}
	if match := answer.GetMatch(); match != nil {
		result.Match = &matchResult{Stream: streamName(match.GetStream()), Offset: match.GetOffset(), Chunk: match.GetData(), Seq: match.GetSeq()}
	}
	return result, nil
}

// wait repeats the server's longest wait until the client leaves.
func (p *waitParams) wait(ctx context.Context, r *request) (*execwirev1.WaitProcessResponse, error) {
	ask := &execwirev1.WaitProcessRequest{SessionId: r.session.id, ProcessId: p.ProcessID.server()}
	p.Until.set(ask, p.condition)
	var deadline time.Time
	if p.TimeoutMs != nil {
		deadline = time.Now().Add(param.Milliseconds(*p.TimeoutMs))
	}
	for wasClosed := false; ; {
		remaining, waiting, hasLeft := time.Until(deadline), r.polls, r.isOver(ctx)
		ask = proto.CloneOf(ask) // the server may still read the request of a cancelled call
		switch {
		case hasLeft:
			ask.Wait, waiting = durationpb.New(0), ctx
		case p.TimeoutMs != nil:
			ask.Wait = durationpb.New(max(remaining, 0))
		}
		answer, err := r.processes.WaitProcess(waiting, ask)
		switch {
		case err != nil && !hasLeft && r.isOver(ctx):
			continue
		case err != nil, answer.GetSatisfied(), hasLeft:
			return answer, err
		case p.TimeoutMs != nil && remaining <= 0, wasClosed && p.condition.needsLife():
			return answer, nil
		}
		wasClosed = hasClosed(answer.GetProcess()) // perhaps just after the server looked
	}
}

// failure converts an error of a wait, with the names of the client's parameters.
func (p *waitParams) failure(err error) *jsonrpc.Error {
	if errorinfo.Reason(err) == execwirev1.ErrorReason_ERROR_REASON_INVALID_FIELD {
		if member := untilMembers[errorinfo.Of(err).GetMetadata()["field"]]; member != "" {
			return param.Invalid(member, problemOf(err))
		}
	}
	return processError(p.ProcessID, err)
}

// untilParams is the condition of process/wait: one of exit, closed, pattern, port and
// idleMs.
type untilParams struct {
	Exit     *bool       `param:"exit,named"`
	Closed   *bool       `param:"closed,named"`
	Pattern  *string     `param:"pattern,named"`
	Stream   *waitStream `param:"stream,named"`
	AfterSeq *uint64     `param:"afterSeq,named"`
	Port     *uint16     `param:"port,named"`
	IdleMs   *uint64     `param:"idleMs,named"`
}

// waitStream is a stream of output.
type waitStream execwirev1.OutputStream

func (w *waitStream) UnmarshalText(text []byte) error {
	return param.Variant((*execwirev1.OutputStream)(w), text, []string{"stdout", "stderr", "pty"},
		execwirev1.OutputStream_OUTPUT_STREAM_STDOUT, execwirev1.OutputStream_OUTPUT_STREAM_STDERR, execwirev1.OutputStream_OUTPUT_STREAM_TERMINAL)
}

// condition is the kind of a condition, as in the result.
type condition string

const (
	untilExit    condition = "exit"
	untilClosed  condition = "closed"
	untilPattern condition = "pattern"
	untilPort    condition = "port"
	untilIdle    condition = "idle"
)

// needsLife reports whether the condition cannot become true after the process has
// closed.
func (c condition) needsLife() bool { return c == untilPattern || c == untilPort }

// untilMembers maps the server's fields to members.
var untilMembers = map[string]string{
	"pattern.regular_expression": "until.pattern",
	"pattern.stream":             "until.stream",
}

// problemOf returns the server's text about a field, without its name.
func problemOf(err error) string {
	for _, detail := range status.Convert(err).Details() {
		if request, ok := detail.(*errdetails.BadRequest); ok && len(request.GetFieldViolations()) > 0 {
			return request.GetFieldViolations()[0].GetDescription()
		}
	}
	return status.Convert(err).Message()
}

// condition returns the condition that is set; exit without one.
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
		return "", param.Invalid("until", "has no condition: give exit, closed, pattern, port or idleMs, or leave it out for the exit")
	case len(given) > 1:
		return "", param.Invalid("until", fmt.Sprintf("has both %s and %s: give one condition", given[0], given[1]))
	}
	return given[0], u.Check()
}

// set sets the condition in the server's request.
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
			Idle: &execwirev1.WaitForIdle{Silence: durationpb.New(param.Milliseconds(*u.IdleMs))}}
	}
}

func (u *untilParams) pattern() *execwirev1.WaitForPattern {
	pattern := &execwirev1.WaitForPattern{RegularExpression: *u.Pattern, AfterSeq: valueOr(u.AfterSeq, 0)}
	if u.Stream != nil {
		pattern.Stream = execwirev1.OutputStream(*u.Stream)
	}
	return pattern
}

// check validates the values.
func (u *untilParams) Check() *jsonrpc.Error {
	switch {
	case u.Exit != nil && !*u.Exit:
		return param.Invalid("until.exit", "is false: set it to true, or leave it out")
	case u.Closed != nil && !*u.Closed:
		return param.Invalid("until.closed", "is false: set it to true, or leave it out")
	case u.Stream != nil && u.Pattern == nil:
		return param.Invalid("until.stream", "is for a pattern: give one, or leave it out")
	case u.AfterSeq != nil && u.Pattern == nil:
		return param.Invalid("until.afterSeq", "is for a pattern: give one, or leave it out")
	case u.Port != nil && *u.Port == 0:
		return param.Invalid("until.port", "is 0: use 1 to 65535")
	case u.IdleMs != nil && *u.IdleMs == 0:
		return param.Invalid("until.idleMs", "is 0: set how long the process must have been silent")
	}
	return nil
}
