package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/eventlog"
	"github.com/execwire/execwire/internal/notify"
	"github.com/execwire/execwire/internal/process"
	"github.com/execwire/execwire/internal/screen"
	"github.com/execwire/execwire/internal/session"
)

// WaitProcess implements the RPC.
func (s *processService) WaitProcess(ctx context.Context, req *execwirev1.WaitProcessRequest) (*execwirev1.WaitProcessResponse, error) {
	p, err := s.server.find(ctx, req.GetSessionId(), req.GetProcessId())
	if err != nil {
		return nil, err
	}
	wait := s.server.capWait(durationOr(req.GetWait(), s.server.limits().GetMaxWait().AsDuration()))
	resp := &execwirev1.WaitProcessResponse{}
	switch condition := req.GetCondition().(type) {
	case *execwirev1.WaitProcessRequest_Closed:
		resp.Satisfied, err = waitFor(ctx, p.Closed(), wait)
	case *execwirev1.WaitProcessRequest_Pattern:
		resp.Match, err = waitForPattern(ctx, p, condition.Pattern, wait)
		resp.Satisfied = resp.Match != nil
	case *execwirev1.WaitProcessRequest_Port:
		resp.Satisfied, err = p.WaitPort(ctx, uint16(condition.Port.GetPort()), wait)
	case *execwirev1.WaitProcessRequest_Idle:
		resp.Satisfied, err = p.WaitIdle(ctx, condition.Idle.GetSilence().AsDuration(), wait)
	case *execwirev1.WaitProcessRequest_Screen:
		resp.Satisfied, resp.Screen, err = waitForScreen(ctx, p, condition.Screen, wait)
	default:
		resp.Satisfied, err = waitFor(ctx, p.Exited(), wait)
	}
	if err != nil {
		return nil, err
	}
	if resp.Process = toProcess(p); resp.Process.GetExit() != nil {
		markSeen(ctx, p)
	}
	return resp, nil
}

// waitFor waits until happened is closed (true), the wait is over (false), or ctx
// ends. If both have happened, it returns true.
func waitFor(ctx context.Context, happened <-chan struct{}, wait time.Duration) (bool, error) {
	if notify.IsClosed(happened) {
		return true, nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-happened:
		return true, nil
	case <-timer.C:
		return false, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// waitForPattern returns the match, or nil if the wait was over first.
func waitForPattern(ctx context.Context, p *session.Process, m *execwirev1.WaitForPattern, wait time.Duration) (*execwirev1.PatternMatch, error) {
	stream, err := fromStream(p, m.GetStream())
	if err != nil {
		return nil, err
	}
	pattern, err := newPattern("pattern.", m.GetRegularExpression())
	if err != nil {
		return nil, err
	}
	match, found, err := p.WaitPattern(ctx, pattern, stream, m.GetAfterSeq(), wait)
	if err != nil || !found {
		return nil, err
	}
	return &execwirev1.PatternMatch{
		Stream: outputStreams[match.Stream], Offset: match.Offset, Data: match.Data, Seq: match.Seq}, nil
}

// newPattern compiles an expression; prefix is that of its field.
func newPattern(prefix, expression string) (*process.Pattern, error) {
	pattern, err := process.NewPattern(expression)
	if malformed, ok := errors.AsType[*process.Error](err); ok {
		return nil, invalidField(prefix+malformed.Field, malformed.Err.Error())
	}
	return pattern, err
}

// waitForScreen reports whether the screen was as wanted before the wait was over, and returns the
// screen then.
func waitForScreen(ctx context.Context, p *session.Process, m *execwirev1.WaitForScreen, wait time.Duration) (bool, *execwirev1.Screen, error) {
	pattern, err := newPattern("screen.", m.GetRegularExpression())
	if err != nil {
		return false, nil, err
	}
	var last *execwirev1.Screen
	satisfied, err := p.WaitScreen(ctx, pattern, m.GetIdle().AsDuration(), wait, func(shown *screen.Screen, seq uint64) {
		last = toScreen(shown.Snapshot(), seq, false)
	})
	return satisfied, last, err
}

// fromStream returns the stream that a wait looks at; 0 is all of them.
func fromStream(p *session.Process, stream execwirev1.OutputStream) (eventlog.Stream, error) {
	if stream == execwirev1.OutputStream_OUTPUT_STREAM_UNSPECIFIED {
		return 0, nil
	}
	for _, one := range streamsOf(p) {
		if outputStreams[one] == stream {
			return one, nil
		}
	}
	return 0, invalidField("pattern.stream", fmt.Sprintf("is %v, which the process does not have: %s",
		stream, "one with a terminal has only that, others have stdout and stderr"))
}

// capWait cuts a wait to the server's maximum.
func (s *Server) capWait(wait time.Duration) time.Duration {
	return min(wait, s.limits().GetMaxWait().AsDuration())
}
