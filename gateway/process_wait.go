package gateway

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/execwire/execwire/gateway/jsonrpc"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// waitParams are the parameters of process/wait.
type waitParams struct {
	ProcessID string       `param:"processId"`
	Until     *untilParams `param:"until,optional"`
	TimeoutMs *uint64      `param:"timeoutMs,optional"`

	condition condition
}

func (p *waitParams) order() (string, place) { return p.ProcessID, placeAny }

func (p *waitParams) check() (err *jsonrpc.Error) {
	if err := checkProcessID(p.ProcessID); err != nil {
		return err
	}
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

// matchResult is where a pattern matched.
type matchResult struct {
	Stream string `json:"stream"`
	Offset uint64 `json:"offset"`
	Chunk  []byte `json:"chunk"`
	Seq    uint64 `json:"seq"`
}

// run waits until the condition holds, cannot hold any more, or the time is over.
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

// wait asks the core, as often as its longest wait makes it necessary, and until
// the client leaves.
func (p *waitParams) wait(ctx context.Context, r *request) (*execwirev1.WaitProcessResponse, error) {
	ask := &execwirev1.WaitProcessRequest{SessionId: r.session.id, ProcessId: coreProcessID(p.ProcessID)}
	p.Until.set(ask, p.condition)
	var deadline time.Time
	if p.TimeoutMs != nil {
		deadline = time.Now().Add(milliseconds(*p.TimeoutMs))
	}
	for wasClosed := false; ; {
		remaining, waiting, hasLeft := time.Until(deadline), r.polls, r.isOver(ctx)
		ask = proto.CloneOf(ask) // the core may still look at that of a call that was given up
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
		wasClosed = hasClosed(answer.GetProcess()) // perhaps just after the core looked
	}
}

// failure is what the client is told of a wait that failed, in the names of its
// own parameters.
func (p *waitParams) failure(err error) *jsonrpc.Error {
	if reasonOf(err) == execwirev1.ErrorReason_ERROR_REASON_INVALID_FIELD {
		if member := untilMembers[coreInfo(err).GetMetadata()["field"]]; member != "" {
			return invalidMember(member, problemOf(err))
		}
	}
	return processFailure(p.ProcessID, err)
}
