// Package auditcall records the calls of the contract in the audit log: what a call is
// about to do before it does that, and the result after it.
package auditcall

import (
	"cmp"
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/audit"
	"github.com/execwire/execwire/internal/errorinfo"
)

// Auditor records calls. A nil Auditor records nothing. All methods may be called
// concurrently.
type Auditor struct {
	// Log is the audit log. Required.
	Log *audit.Log
	// Peer returns the credential, the peer and the API of a call. Required.
	Peer func(ctx context.Context) audit.Caller
}

// Who is the caller of a call as it was authenticated.
type Who struct {
	// Principal and Via are names; empty ones are not known.
	Principal, Via string
	// Permission is what the call needs and the caller has, for the rule of the record.
	Permission string
}

// call is a call that is being recorded.
type call struct {
	auditor *Auditor
	who     Who
	method  string
	began   time.Time
	in, out atomic.Uint64

	mu     sync.Mutex
	intent *audit.Record // guarded by mu; nil before the intent was written, and after the result
	result audit.Record  // guarded by mu; what Annotate has added
}

// callKey is the context key of the call.
type callKey struct{}

// Annotate changes the result of the call of ctx, if it is recorded.
func Annotate(ctx context.Context, change func(*audit.Record)) {
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.result)
}

// Unary makes a unary call, whose handler returns statuses, and records it. If the intent
// cannot be recorded, and the setting says refuse, the call is not made.
func (a *Auditor) Unary(ctx context.Context, who Who, method string, req any, handler func(context.Context) (any, error)) (any, error) {
	record := a.describe(method, req)
	if record == nil {
		return handler(ctx)
	}
	c := &call{auditor: a, who: who, method: method, began: time.Now()}
	if err := c.begin(ctx, record); err != nil {
		return nil, err
	}
	c.in.Add(contentBytes(req))
	resp, err := handler(context.WithValue(ctx, callKey{}, c))
	if err == nil {
		c.out.Add(contentBytes(resp))
		c.note(resp)
	}
	c.end(err)
	return resp, err
}

// Stream makes a streaming call as Unary does. The intent is recorded when the first
// message of the client has been received.
func (a *Auditor) Stream(who Who, method string, stream grpc.ServerStream, handler func(grpc.ServerStream) error) error {
	if !isRecorded(method) {
		return handler(stream)
	}
	c := &call{auditor: a, who: who, method: method, began: time.Now()}
	err := handler(&recordedStream{ServerStream: stream, call: c, ctx: context.WithValue(stream.Context(), callKey{}, c)})
	c.end(err)
	return err
}

// Do does an action of a stream, which has its own records, for a caller of the stream's
// call.
func (a *Auditor) Do(ctx context.Context, method string, record *audit.Record, do func() error, toStatus func(error) error) error {
	if a == nil {
		return do()
	}
	c := &call{auditor: a, method: method, began: time.Now()}
	if of, ok := ctx.Value(callKey{}).(*call); ok {
		c.who = of.who
	}
	if err := c.begin(ctx, record); err != nil {
		return err
	}
	err := do()
	c.end(toStatus(err))
	return err
}

// Denied records that a call was denied before it was made, for which err is the status.
// Other errors than denials are not recorded.
func (a *Auditor) Denied(ctx context.Context, who Who, method string, req any, err error, rule string) {
	if a == nil || !isDenial(err) {
		return
	}
	a.DeniedPeer(a.Peer(ctx), who, method, req, err, rule)
}

// DeniedPeer is Denied for a peer without a call. method may be empty.
func (a *Auditor) DeniedPeer(peer audit.Caller, who Who, method string, req any, err error, rule string) {
	if a == nil {
		return
	}
	record := a.describe(method, req)
	if record == nil {
		record = &audit.Record{Action: cmp.Or(actions[method], reads[method], "call")}
	}
	if who.Principal == "" {
		record.Action = "authenticate"
	}
	record.Caller, record.Method, record.Rule = peer, methodName(method), rule
	record.Principal, record.Via = who.Principal, who.Via
	record.Status, record.Reason = codeName(err), errorinfo.Of(err).GetReason()
	host := peer.Peer[:max(strings.LastIndexByte(peer.Peer, ':'), 0)] // without the port
	a.Log.Deny(record, cmp.Or(who.Principal, host))
}

// begin records the intent. The error is a status.
func (c *call) begin(ctx context.Context, record *audit.Record) error {
	record.Caller = c.auditor.Peer(ctx)
	record.Principal, record.Via = c.who.Principal, c.who.Via
	record.Method, record.Call = methodName(c.method), c.auditor.Log.NewCall()
	if c.who.Permission != "" {
		record.Rule = "permission " + c.who.Permission
	}
	if c.auditor.Log.Intend(record) != nil {
		return refused()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.intent = record
	return nil
}

// note adds what a message of the server says to the result.
func (c *call) note(m any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	noteResponse(&c.result, m)
}

// end records the result, once, if there was an intent. A later rule than permissions may
// have denied the call.
func (c *call) end(err error) {
	c.mu.Lock()
	intent, result := c.intent, c.result
	c.intent = nil
	c.mu.Unlock()
	if intent == nil {
		return
	}
	result.Type, result.Action, result.Call, result.Caller, result.Method = audit.Result, intent.Action, intent.Call, intent.Caller, intent.Method
	result.Session = cmp.Or(result.Session, intent.Session)
	result.Process = cmp.Or(result.Process, intent.Process)
	result.Decision, result.Rule = audit.DecisionAllowed, intent.Rule
	result.Status, result.Reason = codeName(err), errorinfo.Of(err).GetReason()
	if isDenial(err) {
		result.Decision, result.Rule = audit.DecisionDenied, result.Reason
	}
	result.BytesIn, result.BytesOut = c.in.Load(), c.out.Load()
	result.DurationMicros = time.Since(c.began).Microseconds()
	c.auditor.Log.Write(&result)
}

// recordedStream records what passes through a stream.
type recordedStream struct {
	grpc.ServerStream
	call *call
	ctx  context.Context
	// begun is used by the goroutine that receives.
	begun bool
}

// Context implements grpc.ServerStream.
func (s *recordedStream) Context() context.Context { return s.ctx }

// RecvMsg implements grpc.ServerStream.
func (s *recordedStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	if s.begun {
		s.call.in.Add(contentBytes(m))
		return nil
	}
	s.begun = true
	record := s.call.auditor.describe(s.call.method, m)
	if record == nil {
		return nil
	}
	return s.call.begin(s.ctx, record)
}

// SendMsg implements grpc.ServerStream. Once a process has started, or a session is
// attached, that is the result: the rest of the stream is about what follows.
func (s *recordedStream) SendMsg(m any) error {
	s.call.out.Add(contentBytes(m))
	if isAnswer(m) {
		s.call.note(m)
		s.call.end(nil)
	}
	return s.ServerStream.SendMsg(m)
}

// refused is the status of a call that is not made because it cannot be recorded. The
// cause is in the server's log, because it names the file.
func refused() error {
	st := status.New(codes.Unavailable, "the server's audit log cannot be written, so that it does not do this: its operator has to free space on the disk, or see its log")
	detailed, failed := st.WithDetails(&errdetails.ErrorInfo{
		Domain: errorinfo.Domain, Reason: errorinfo.Name(execwirev1.ErrorReason_ERROR_REASON_AUDIT_LOG_FAILED)})
	if failed != nil {
		return st.Err()
	}
	return detailed.Err()
}

// isDenial reports whether a status is the decision of a rule, not a failure.
func isDenial(err error) bool {
	switch status.Code(err) {
	case codes.Unauthenticated:
		return true
	case codes.PermissionDenied: // of the system, for a file or a program
		return errorinfo.Reason(err) != execwirev1.ErrorReason_ERROR_REASON_PERMISSION_DENIED
	}
	switch errorinfo.Reason(err) {
	case execwirev1.ErrorReason_ERROR_REASON_TOO_MANY_FAILED_ATTEMPTS, execwirev1.ErrorReason_ERROR_REASON_TOO_MANY_CONNECTIONS,
		execwirev1.ErrorReason_ERROR_REASON_SANDBOX_UNAVAILABLE, execwirev1.ErrorReason_ERROR_REASON_HTTP_DISABLED:
		return true
	}
	return false
}

// codeName returns the code of a status.
func codeName(err error) string { return status.Code(err).String() }

// methodName returns a full method without its leading slash, bounded: callers choose it.
func methodName(method string) string {
	return strings.TrimPrefix(method[:min(len(method), 200)], "/")
}
