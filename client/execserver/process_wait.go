package execserver

import (
	"context"
	"time"

	"github.com/execwire/execwire/gateway/jsonrpc"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// waitSlice is how long one request to a server waits: one whose caller has left
// keeps its place for no longer.
const waitSlice = 10 * time.Second

type waitParams struct {
	ProcessID string    `json:"processId"`
	Until     waitUntil `json:"until"`
	TimeoutMs int64     `json:"timeoutMs"`
}

type waitUntil struct {
	Exit     bool   `json:"exit,omitempty"`
	Closed   bool   `json:"closed,omitempty"`
	Pattern  string `json:"pattern,omitempty"`
	Stream   string `json:"stream,omitempty"`
	AfterSeq uint64 `json:"afterSeq,omitempty"`
	Port     uint32 `json:"port,omitempty"`
	IdleMs   int64  `json:"idleMs,omitempty"`
}

type waitResult struct {
	Met    *string    `param:"met"`
	Closed bool       `param:"closed"`
	Match  *waitMatch `param:"match"`
}

type waitMatch struct {
	Stream string         `param:"stream"`
	Offset uint64         `param:"offset"`
	Chunk  jsonrpc.Base64 `param:"chunk"`
	Seq    uint64         `param:"seq"`
}

// WaitProcess implements the RPC.
func (s *processService) WaitProcess(ctx context.Context, r *execwirev1.WaitProcessRequest) (*execwirev1.WaitProcessResponse, error) {
	p, err := s.named(r)
	if err != nil {
		return nil, err
	}
	wait := maxWait
	if r.GetWait() != nil {
		wait = waitOf(r.GetWait().AsDuration())
	}
	if !s.conn.features().execwire {
		return s.waitHere(ctx, p, r, wait)
	}
	until, err := untilOf(r)
	if err != nil {
		return nil, err
	}
	needsLife := r.GetPattern() != nil || r.GetPort() != nil
	for deadline := time.Now().Add(wait); ; {
		left := max(time.Until(deadline), 0)
		var result waitResult
		params := waitParams{ProcessID: p.id, Until: until, TimeoutMs: min(left, waitSlice).Milliseconds()}
		if err := s.conn.call(ctx, "process/wait", params, &result); err != nil {
			return nil, err
		}
		if result.Met == nil && left > 0 && (!needsLife || !result.Closed) {
			continue
		}
		return s.waited(ctx, p, &result)
	}
}

// waited is the answer to a wait.
func (s *processService) waited(ctx context.Context, p *process, result *waitResult) (*execwirev1.WaitProcessResponse, error) {
	described, err := s.describe(ctx, p)
	if err != nil {
		return nil, err
	}
	response := &execwirev1.WaitProcessResponse{Satisfied: result.Met != nil, Process: described}
	if match := result.Match; match != nil {
		stream, err := p.streamOf(match.Stream)
		if err != nil {
			return nil, err
		}
		response.Match = &execwirev1.PatternMatch{Stream: stream, Offset: match.Offset, Data: match.Chunk, Seq: match.Seq}
	}
	return response, nil
}

// untilOf is the condition of a wait as the protocol has it.
func untilOf(r *execwirev1.WaitProcessRequest) (until waitUntil, err error) {
	switch condition := r.GetCondition().(type) {
	case nil, *execwirev1.WaitProcessRequest_Exit:
		until.Exit = true
	case *execwirev1.WaitProcessRequest_Closed:
		until.Closed = true
	case *execwirev1.WaitProcessRequest_Pattern:
		until.Pattern, until.AfterSeq = condition.Pattern.GetRegularExpression(), condition.Pattern.GetAfterSeq()
		for name, stream := range streams {
			if stream == condition.Pattern.GetStream() {
				until.Stream = name
			}
		}
		if until.Pattern == "" {
			return until, invalidField("pattern.regular_expression", "is empty")
		}
	case *execwirev1.WaitProcessRequest_Port:
		if until.Port = condition.Port.GetPort(); until.Port == 0 || until.Port > 65535 {
			return until, invalidField("port.port", "is not from 1 to 65535")
		}
	case *execwirev1.WaitProcessRequest_Idle:
		if until.IdleMs = condition.Idle.GetSilence().AsDuration().Milliseconds(); until.IdleMs <= 0 {
			return until, invalidField("idle.silence", "is less than a millisecond")
		}
	}
	return until, nil
}

// waitHere waits for what a server tells in notifications.
func (s *processService) waitHere(ctx context.Context, p *process, r *execwirev1.WaitProcessRequest, wait time.Duration) (*execwirev1.WaitProcessResponse, error) {
	switch r.GetCondition().(type) {
	case nil, *execwirev1.WaitProcessRequest_Exit, *execwirev1.WaitProcessRequest_Closed:
	default:
		return nil, notInProtocol("waiting for anything but the exit and the close of a process")
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for over := false; ; {
		l, err := s.conn.current(ctx)
		if err != nil {
			return nil, err
		}
		_, exit, closed, changed := p.state()
		met := exit != nil && r.GetClosed() == nil || closed
		if met || over {
			return &execwirev1.WaitProcessResponse{Satisfied: met, Process: p.describe()}, nil
		}
		select {
		case <-changed:
		case <-timer.C:
			over = true
		case <-l.lost():
			return nil, l.status()
		case <-ctx.Done():
			return nil, contextStatus(ctx)
		}
	}
}
