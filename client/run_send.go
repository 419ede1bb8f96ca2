package client

import (
	"context"
	"sync"
	"time"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/notify"
)

// detachTimeout is how long a detached process may take to accept its input.
const detachTimeout = time.Second

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
	case <-r.acks.timer.due.C():
		return r.acks.message(), true
	default:
	}
	select {
	case <-ctx.Done():
		return nil, false
	case <-r.acks.timer.due.C():
		return r.acks.message(), true
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

const (
	// acknowledgeIdle is how long a few consumed events may stay unacknowledged, before
	// the server can release them.
	acknowledgeIdle = 50 * time.Millisecond
	// acknowledgeEvents is how many small events are acknowledged together if the
	// server does not announce its window.
	acknowledgeEvents = 1024
)

// consumption is what was consumed of one process since the last acknowledgement.
type consumption struct{ bytes, events int }

// limitsOf returns how much is consumed before it is acknowledged: a quarter of either
// window, so that a process never waits for it. 0 events are unknown.
func limitsOf(windowBytes, windowEvents uint64) consumption {
	limits := consumption{bytes: int(min(windowBytes/4, 1<<30)), events: acknowledgeEvents}
	if windowEvents > 0 {
		limits.events = int(min(windowEvents/4, 1<<30))
	}
	return limits
}

// isDue reports whether c reaches the limits.
func (c consumption) isDue(limits consumption) bool {
	return c.bytes > limits.bytes || c.events >= limits.events
}

// ackTimer tells the sender when to acknowledge: at once, or acknowledgeIdle after the
// first event. The lock of what was consumed guards it.
type ackTimer struct {
	due  notify.Signal
	idle *time.Timer // nil when nothing is consumed
}

func (t *ackTimer) set(now bool) {
	switch {
	case now:
		t.due.Set()
	case t.idle == nil:
		t.idle = time.AfterFunc(acknowledgeIdle, t.due.Set)
	}
}

// reset is called when everything consumed is acknowledged.
func (t *ackTimer) reset() {
	if t.idle != nil {
		t.idle.Stop()
		t.idle = nil
	}
	t.due.Clear()
}

// acknowledger decides when the sender of a run acknowledges consumed events: at the
// limits, immediately after the last event, with which the server ends the stream, and
// otherwise shortly after the first.
type acknowledger struct {
	mu       sync.Mutex
	timer    ackTimer    // guarded by mu, except for its signal
	limits   consumption // guarded by mu
	consumed consumption // guarded by mu
	last     uint64      // guarded by mu; the seq up to which events were consumed
}

func newAcknowledger() *acknowledger {
	return &acknowledger{timer: ackTimer{due: notify.NewSignal()}}
}

// resume begins a stream with these windows. The receiver calls it before there is a
// sender.
func (a *acknowledger) resume(windowBytes, windowEvents uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.limits, a.consumed = limitsOf(windowBytes, windowEvents), consumption{}
	a.timer.reset()
}

// taken records that everything up to last was consumed, with the sizes of what is new,
// and whether to acknowledge at once because it is the last event. last never
// decreases.
func (a *acknowledger) taken(last uint64, bytes, events int, final bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last = last
	a.consumed.bytes += bytes
	a.consumed.events += events
	a.timer.set(final || a.consumed.isDue(a.limits))
}

// message acknowledges what was consumed so far. The sender calls it.
func (a *acknowledger) message() *execwirev1.RunProcessRequest {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.consumed = consumption{}
	a.timer.reset()
	return &execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Acknowledge{
		Acknowledge: &execwirev1.RunAcknowledge{Seq: a.last},
	}}
}
