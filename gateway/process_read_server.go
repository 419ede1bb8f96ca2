package gateway

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/errorinfo"
)

const (
	// coreReadBytes is the largest output in one answer of ReadOutput.
	coreReadBytes = 1 << 20
	// smallReadBytes is the size of a result without an answer slot, which every
	// request in flight may keep while the client does not read.
	smallReadBytes = 64 << 10
)

// reading is a process/read and its result. The result is consistent up to the seq
// before nextSeq, unless maxBytes cut it: a client that appends it to what it had has
// everything up to there.
type reading struct {
	*request
	id       string
	after    uint64    // what the client has
	position uint64    // the last seq of the result
	budget   uint64    // remaining bytes of the result
	deadline time.Time // zero: do not wait
	most     uint64    // bytes to request from the server at once
	release  func()    // releases the answer slot; nil without one

	chunks []*execwirev1.ProcessEvent // outputs
	gap    *execwirev1.OutputGap      // before the first chunk
	exit   *execwirev1.ExitRecord     // nil: not exited
	closed bool
}

// read builds the result from one answer of the server, or several if more is retained.
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

// first waits for the first output, until the deadline.
func (r *reading) first(ctx context.Context) (*execwirev1.ReadOutputResponse, error) {
	answer, err := r.ask(ctx, r.remaining())
	if errorinfo.Reason(err) != execwirev1.ErrorReason_ERROR_REASON_SEQ_NOT_REACHED {
		return answer, err
	}
	// The client is ahead of the process; it has everything until then.
	response, err := r.processes.GetProcess(ctx, &execwirev1.GetProcessRequest{SessionId: r.session.id, ProcessId: r.id})
	if err != nil {
		return nil, err
	}
	r.position = min(response.GetProcess().GetLastSeq(), r.after) // it may have written meanwhile
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

// askForMore is ask for what exceeds a small result. It waits for an answer slot, which
// the result holds until it was sent.
func (r *reading) askForMore(ctx context.Context) (*execwirev1.ReadOutputResponse, error) {
	if r.release == nil {
		release, err := r.outputAnswers.Acquire(ctx)
		if err != nil {
			return nil, err
		}
		r.release, r.most = release, coreReadBytes
	}
	return r.ask(ctx, 0)
}

// ask waits for output after position. It repeats the server's longest wait until the
// client leaves.
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

// remaining returns the time until the deadline.
func (r *reading) remaining() time.Duration {
	if r.deadline.IsZero() {
		return 0
	}
	return max(time.Until(r.deadline), 0)
}

// add adds an answer of the server, and reports whether all of it fit.
func (r *reading) add(answer *execwirev1.ReadOutputResponse) bool {
	for _, event := range answer.GetEvents() {
		size := uint64(len(event.GetOutput().GetData()))
		switch {
		case event.GetGap() != nil:
			r.gap = event.GetGap()
			continue
		case event.GetOutput() == nil, event.GetSeq() <= r.after:
			// not a chunk, or one that the client has
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

// conclude determines whether the process had exited by position. The server's
// description may be ahead of its log.
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

// hasExited reports whether the feed has received the exited event.
func (r *reading) hasExited() bool {
	r.table.mu.Lock()
	defer r.table.mu.Unlock()
	p := r.table.record(r.id)
	return p.exit > 0 && p.exit <= r.position
}

// findExit looks for the exited event among the events that the client has. It is there
// if descendants hold the streams open and the event precedes the resume of the
// session.
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
