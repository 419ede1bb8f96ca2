package gateway

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

const (
	// coreReadBytes is the most output in one answer of the core's ReadOutput.
	coreReadBytes = 1 << 20
	// smallReadBytes is how much of an answer is put together without a slot in
	// connection.reads: what every request in flight may keep of it while the
	// client does not read.
	smallReadBytes = 64 << 10
)

// read puts the answer together: from one answer of the core, or from several
// where more is retained than one can have.
func (r *reading) read(ctx context.Context) error {
	r.most = smallReadBytes
	answer, err := r.first(ctx)
	if err != nil {
		return err
	}
	target := answer.GetLastSeq()
	for {
		limited := r.budget <= r.most
		if !r.add(answer) || limited && len(r.chunks) > 0 && answer.GetNextAfterSeq() < answer.GetLastSeq() {
			r.exit, r.closed = answer.GetExit(), answer.GetClosed()
			return nil
		}
		if r.position >= target {
			return r.conclude(ctx, answer)
		}
		next, err := r.askForMore(ctx)
		if err != nil {
			return err
		}
		if len(r.chunks) > 0 && startsWithGap(next) {
			return r.conclude(ctx, answer) // the next read begins with it
		}
		answer = next
	}
}

func startsWithGap(answer *execwirev1.ReadOutputResponse) bool {
	events := answer.GetEvents()
	return len(events) > 0 && events[0].GetGap() != nil
}

// first asks until there is something for the client, or the wait is over.
func (r *reading) first(ctx context.Context) (*execwirev1.ReadOutputResponse, error) {
	answer, err := r.ask(ctx, r.remaining())
	if reasonOf(err) != execwirev1.ErrorReason_ERROR_REASON_SEQ_NOT_REACHED {
		return answer, err
	}
	// The client is ahead of the process: what comes until then it has, it says.
	response, err := r.processes.GetProcess(ctx, &execwirev1.GetProcessRequest{SessionId: r.session.id, ProcessId: r.id})
	if err != nil {
		return nil, err
	}
	r.position = min(response.GetProcess().GetLastSeq(), r.after) // it may have gone on meanwhile
	for {
		answer, err := r.ask(ctx, r.remaining())
		switch {
		case err != nil:
			return nil, err
		case answer.GetNextAfterSeq() > r.after, answer.GetClosed(), r.remaining() == 0:
			return answer, nil
		}
		r.position = answer.GetNextAfterSeq()
	}
}

// askForMore is ask for what does not fit into a small answer. It waits for a
// slot, which the answer has until it was said.
func (r *reading) askForMore(ctx context.Context) (*execwirev1.ReadOutputResponse, error) {
	if r.leave == nil {
		leave, err := r.reads.enter(ctx)
		if err != nil {
			return nil, err
		}
		r.leave, r.most = leave, coreReadBytes
	}
	return r.ask(ctx, 0)
}

// ask asks the core for what follows the position, and waits for it: as often as
// the core's longest wait makes it necessary, and until the client leaves.
func (r *reading) ask(ctx context.Context, wait time.Duration) (*execwirev1.ReadOutputResponse, error) {
	for {
		request := &execwirev1.ReadOutputRequest{SessionId: r.session.id, ProcessId: r.id, AfterSeq: r.position}
		if most := min(r.budget, r.most); most < coreReadBytes {
			request.MaxBytes = proto.Uint32(uint32(most))
		}
		waiting := ctx
		if wait > 0 {
			request.Wait = durationpb.New(wait)
			waiting = r.polls
		}
		answer, err := r.processes.ReadOutput(waiting, request)
		if err != nil && wait > 0 && r.isOver(ctx) {
			wait, r.deadline = 0, time.Time{}
			continue
		}
		if err != nil || wait <= 0 || len(answer.GetEvents()) > 0 || answer.GetClosed() {
			return answer, err
		}
		wait = r.remaining()
	}
}

// remaining is how long may still be waited.
func (r *reading) remaining() time.Duration {
	if r.deadline.IsZero() {
		return 0
	}
	return max(time.Until(r.deadline), 0)
}

// add adds what the core answered, and reports whether all of it fit.
func (r *reading) add(answer *execwirev1.ReadOutputResponse) bool {
	for _, event := range answer.GetEvents() {
		size := uint64(len(event.GetOutput().GetData()))
		switch {
		case event.GetGap() != nil:
			r.gap = event.GetGap()
			continue
		case event.GetOutput() == nil, event.GetSeq() <= r.after:
			r.totals = event.GetClosed()
		case size > r.budget && len(r.chunks) > 0:
			return false
		default:
			r.chunks = append(r.chunks, event)
			r.budget -= min(size, r.budget)
		}
		if event.GetExited() != nil {
			r.exit = answer.GetExit()
		}
		r.position = event.GetSeq()
	}
	r.position = max(r.position, answer.GetNextAfterSeq())
	return true
}

// conclude says whether the process had exited by the position. The core may
// know it before its log does.
func (r *reading) conclude(ctx context.Context, answer *execwirev1.ReadOutputResponse) error {
	r.closed = answer.GetClosed() && r.position == answer.GetLastSeq()
	if r.exit != nil || answer.GetExit() == nil {
		return nil
	}
	exited := r.closed || r.hasExited()
	if !exited && r.after > 0 {
		var err error
		if exited, err = r.findExit(ctx); err != nil {
			return err
		}
	}
	if exited {
		r.exit = answer.GetExit()
	}
	return nil
}

// hasExited reports whether the feed has brought the exited event already.
func (r *reading) hasExited() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.record(r.id)
	return p.exit > 0 && p.exit <= r.position
}

// findExit looks whether the exited event is among those that the client has:
// the process has left something behind that holds its streams open, and the
// event came before the session was resumed.
func (r *reading) findExit(ctx context.Context) (bool, error) {
	for after := uint64(0); after < r.after; {
		answer, err := r.processes.ReadOutput(ctx, &execwirev1.ReadOutputRequest{
			SessionId: r.session.id, ProcessId: r.id, AfterSeq: after})
		if err != nil {
			return false, err
		}
		for _, event := range answer.GetEvents() {
			if event.GetExited() != nil {
				return event.GetSeq() <= r.position, nil
			}
		}
		if answer.GetNextAfterSeq() <= after {
			return false, nil
		}
		after = answer.GetNextAfterSeq()
	}
	return false, nil
}
