package client

import (
	"context"
	"time"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// detachTimeout is how long a detached process may take to accept its input.
const detachTimeout = 10 * time.Second

// control has the requests for the process besides input. It belongs to the sender, of
// which there is one at a time.
type control struct {
	// nil once closed.
	resize    <-chan *execwirev1.TerminalSize
	signals   <-chan *execwirev1.RunSignal
	terminate <-chan *execwirev1.Termination
	// Either asks to detach; keysPressed by DetachKeys.
	detach, keysPressed <-chan struct{}

	// size and termination are sent first on a new stream: the last size and the last
	// termination, both idempotent.
	size, termination *execwirev1.RunProcessRequest
	// unsent is a signal whose Send failed.
	unsent *execwirev1.RunProcessRequest
	// detaching is whether to detach from the process.
	detaching bool
}

// send sends requests until ctx is done or the stream breaks; the receiver learns why.
func (r *run) send(ctx context.Context, stream runStream) {
	for _, request := range []*execwirev1.RunProcessRequest{
		r.control.size, r.control.unsent, r.control.termination,
	} {
		if request != nil && stream.Send(request) != nil {
			return
		}
	}
	r.control.unsent = nil
	if r.control.detaching { // the previous stream broke while detaching
		r.sendDetach(ctx, stream)
		return
	}
	for {
		request, ok := r.next(ctx)
		if !ok {
			return
		}
		if r.control.detaching {
			r.sendDetach(ctx, stream)
			return
		}
		if request != nil && stream.Send(request) != nil {
			if request.GetSignal() != nil {
				r.control.unsent = request
			}
			return
		}
	}
}

// next blocks until there is a request to send. It returns false when ctx is done, and
// nil when there is nothing to send. A due acknowledgement comes first: the server
// waits for it, and input may be endless.
func (r *run) next(ctx context.Context) (*execwirev1.RunProcessRequest, bool) {
	select {
	case <-r.acks.due.C():
		return r.acknowledgement(), true
	default:
	}
	select {
	case <-ctx.Done():
		return nil, false
	case <-r.acks.due.C():
		return r.acknowledgement(), true
	case <-r.stdin.readable():
		return r.stdin.next(), true
	case size, ok := <-r.control.resize:
		if !ok {
			r.control.resize = nil
			return nil, true
		}
		r.control.size = &execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Resize{Resize: size}}
		return r.control.size, true
	case signal, ok := <-r.control.signals:
		if !ok {
			r.control.signals = nil
			return nil, true
		}
		return &execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Signal{Signal: signal}}, true
	case termination, ok := <-r.control.terminate:
		if !ok {
			r.control.terminate = nil
			return nil, true
		}
		r.control.termination = &execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Terminate{Terminate: termination}}
		return r.control.termination, true
	case <-r.control.detach:
		r.control.detaching = true
	case <-r.control.keysPressed:
		r.control.detaching = true
	}
	return nil, true
}

// acknowledgement acknowledges what was consumed so far; nil if that was done.
func (r *run) acknowledgement() *execwirev1.RunProcessRequest {
	for _, seq := range r.acks.pending() {
		return &execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Acknowledge{
			Acknowledge: &execwirev1.RunAcknowledge{Seq: seq}}}
	}
	return nil
}

// sendDetach detaches once the process has accepted the input that was read, or after
// detachTimeout. It ends the stream.
func (r *run) sendDetach(ctx context.Context, stream runStream) {
	timer := time.NewTimer(detachTimeout)
	defer timer.Stop()
	for late := false; !late && !r.stdin.drained(); {
		select {
		case <-r.stdin.readable():
			if request := r.stdin.next(); request != nil && stream.Send(request) != nil {
				return
			}
		case <-timer.C:
			late = true
		case <-ctx.Done():
			return
		}
	}
	r.detached.Store(true)
	_ = stream.Send(detachment) // the receiver learns how the stream ended
}

// detachment asks to detach.
var detachment = &execwirev1.RunProcessRequest{
	Message: &execwirev1.RunProcessRequest_Detach{Detach: &execwirev1.RunDetach{}},
}
