package client

import (
	"sync"
	"sync/atomic"
	"time"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

const (
	// acknowledgeIdle is how long a few taken events may stay unacknowledged,
	// so that the server can let go of them.
	acknowledgeIdle = 50 * time.Millisecond
	// acknowledgeEvents is how many small events are acknowledged at once when
	// the server does not say how many it waits for.
	acknowledgeEvents = 1024
)

// acknowledger decides when the sender acknowledges what the receiver took: at
// a quarter of either window, so that a process never waits for it; at once
// when nothing follows, because the server ends the stream by it; and a moment
// after the first otherwise.
type acknowledger struct {
	// due asks for an acknowledgement at once, soon for one after a while.
	due, soon chan struct{}
	// armed is whether soon was asked for and not yet served.
	armed *atomic.Bool
	// last is the seq up to which everything was taken.
	last *atomic.Uint64

	mu                    sync.Mutex
	byteLimit, eventLimit int // guarded by mu
	bytes, events         int // guarded by mu
}

func newAcknowledger() acknowledger {
	return acknowledger{
		due:   make(chan struct{}, 1),
		soon:  make(chan struct{}, 1),
		armed: new(atomic.Bool),
		last:  new(atomic.Uint64),
	}
}

// resume begins a stream whose windows are bytes and events; 0 events are
// unknown. The receiver calls it before there is a sender.
func (a *acknowledger) resume(bytes, events uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.byteLimit = int(min(bytes/4, 1<<30))
	a.eventLimit = acknowledgeEvents
	if events > 0 {
		a.eventLimit = int(min(events/4, 1<<30))
	}
	a.bytes, a.events = 0, 0
	a.armed.Store(false)
	drain(a.due)
	drain(a.soon)
}

// taken says that everything up to last was taken, how much is new, and whether it
// is to be acknowledged at once: last is the last there is. last never falls.
func (a *acknowledger) taken(last uint64, bytes, events int, final bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last.Store(last)
	a.bytes += bytes
	a.events += events
	if final || a.bytes > a.byteLimit || a.events >= a.eventLimit {
		a.bytes, a.events = 0, 0
		notify(a.due)
		return
	}
	if a.armed.CompareAndSwap(false, true) {
		notify(a.soon)
	}
}

// message acknowledges what was taken up to now. The sender calls it.
func (a *acknowledger) message() *execwirev1.RunProcessRequest {
	a.armed.Store(false)
	return &execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Acknowledge{
		Acknowledge: &execwirev1.RunAcknowledge{Seq: a.last.Load()},
	}}
}

// notify wakes whoever waits on c, which has room for one.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func drain(c chan struct{}) {
	select {
	case <-c:
	default:
	}
}
