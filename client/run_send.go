package client

import (
	"context"
	"time"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// detachTimeout is how long a process that is given up may take to accept its
// input.
const detachTimeout = time.Second

// control is what a process is told besides its input. It belongs to the
// sender, of which there is one at a time.
type control struct {
	// nil once closed.
	resize    <-chan *execwirev1.TerminalSize
	signals   <-chan *execwirev1.RunSignal
	terminate <-chan *execwirev1.Termination
	// Either asks to give the process up; pressed by keys.
	detach, pressed <-chan struct{}

	// size and termination are what a new stream begins with: the last size and the last
	// termination, which are harmless twice.
	size, termination *execwirev1.RunProcessRequest
	// unsent is a signal whose Send failed.
	unsent *execwirev1.RunProcessRequest
	// detaching is whether the process is to be given up.
	detaching bool
}

// send tells the process everything it is to be told, until ctx is done or the
// stream breaks; why it broke, the receiver learns.
func (r *run) send(ctx context.Context, stream runStream) {
	for _, request := range []*execwirev1.RunProcessRequest{
		r.control.size, r.control.unsent, r.control.termination,
	} {
		if request != nil && stream.Send(request) != nil {
			return
		}
	}
	r.control.unsent = nil
	if r.control.detaching { // a stream that was to be the last broke
		r.sendDetach(ctx, stream)
		return
	}
	idle := time.NewTimer(acknowledgeIdle)
	idle.Stop()
	defer idle.Stop()
	for {
		request, ok := r.next(ctx, idle)
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

// next blocks until there is something to do. It returns false when ctx is
// done, and nil when nothing is to be sent. An acknowledgement that is due goes
// before everything else: the server waits for it, and input may be endless.
func (r *run) next(ctx context.Context, idle *time.Timer) (*execwirev1.RunProcessRequest, bool) {
	select {
	case <-r.acks.due:
		return r.acks.message(), true
	default:
	}
	select {
	case <-ctx.Done():
		return nil, false
	case <-r.acks.due:
		return r.acks.message(), true
	case <-r.acks.soon:
		idle.Reset(acknowledgeIdle)
		return nil, true
	case <-idle.C:
		return r.acks.message(), true
	case <-r.stdin.readable():
		return r.stdin.next(), true
	case size, ok := <-r.control.resize:
		return r.control.resized(size, ok), true
	case signal, ok := <-r.control.signals:
		return r.control.signalled(signal, ok), true
	case termination, ok := <-r.control.terminate:
		return r.control.terminated(termination, ok), true
	case <-r.control.detach:
		r.control.detaching = true
	case <-r.control.pressed:
		r.control.detaching = true
	}
	return nil, true
}

// sendDetach gives the process up once it has accepted the input that was read,
// or after a while. The stream is over with it.
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

// detachment gives a process up.
var detachment = &execwirev1.RunProcessRequest{
	Message: &execwirev1.RunProcessRequest_Detach{Detach: &execwirev1.RunDetach{}},
}

func (c *control) resized(size *execwirev1.TerminalSize, ok bool) *execwirev1.RunProcessRequest {
	if !ok {
		c.resize = nil
		return nil
	}
	c.size = &execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Resize{Resize: size}}
	return c.size
}

func (c *control) signalled(signal *execwirev1.RunSignal, ok bool) *execwirev1.RunProcessRequest {
	if !ok {
		c.signals = nil
		return nil
	}
	return &execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Signal{Signal: signal}}
}

func (c *control) terminated(termination *execwirev1.Termination, ok bool) *execwirev1.RunProcessRequest {
	if !ok {
		c.terminate = nil
		return nil
	}
	c.termination = &execwirev1.RunProcessRequest{
		Message: &execwirev1.RunProcessRequest_Terminate{Terminate: termination},
	}
	return c.termination
}
