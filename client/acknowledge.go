package client

import (
	"sync"
	"time"

	"github.com/execwire/execwire/internal/notify"
)

const (
	// MaxUnreadBytes is how much of a process a server may send ahead of the readers of
	// a Process or a Session, plus 256 bytes for each event: 16 MiB, or its window if
	// that is larger, up to 1 GiB, which is also the limit for all processes of a Session.
	// More fails with a [*WindowError].
	MaxUnreadBytes = 16 << 20
	// maxWindowBytes is the largest window, with its events, that a server may use.
	maxWindowBytes = 1 << 30
	// unreadSlack is what a server may send beyond a large window: the rest of a message
	// that was acknowledged in part, the exit, the close and gaps.
	unreadSlack = 1 << 20
	// eventBytes is the memory of an event besides its output.
	eventBytes = 256

	// acknowledgeIdle is how long a few consumed events may stay unacknowledged, before
	// the server can release them.
	acknowledgeIdle = 50 * time.Millisecond
	// acknowledgeEvents is how many small events are acknowledged together if the
	// server does not announce its window.
	acknowledgeEvents = 1024
)

// unreadLimit returns how much a server with these windows may send ahead of a reader.
func unreadLimit(windowBytes, windowEvents uint64) int {
	window := min(windowBytes, maxWindowBytes) + eventBytes*min(windowEvents, maxWindowBytes)
	return max(MaxUnreadBytes, int(min(window+unreadSlack, maxWindowBytes)))
}

// acknowledger decides when the sender of a stream acknowledges consumed events: at a
// quarter of either window of a process, so that it never waits, immediately after the
// last event, with which the server ends it, and otherwise shortly after the first. It
// also limits what is received and not consumed. All methods may be called concurrently.
type acknowledger struct {
	due notify.Signal // wakes the sender

	mu sync.Mutex
	// idle sets due; nil when nothing is to be acknowledged; guarded by mu.
	idle *time.Timer
	// bytes and events are how much of a process is consumed before it is acknowledged,
	// limit is how much of it may be received and not consumed; guarded by mu.
	bytes, events, limit int
	processes            map[string]*consumption // guarded by mu
}

// consumption is what was consumed of a process.
type consumption struct {
	last          uint64 // the seq up to which events were consumed
	bytes, events int    // what was consumed since the last acknowledgement
	isPending     bool   // last is to be acknowledged
	unread        int    // the size of what was received and not consumed
}

func newAcknowledger() *acknowledger {
	a := &acknowledger{due: notify.NewSignal(), processes: map[string]*consumption{}}
	a.resume(0, 0)
	return a
}

// process returns the state of a process. The caller holds mu.
func (a *acknowledger) process(id string) *consumption {
	c := a.processes[id]
	if c == nil {
		c = &consumption{}
		a.processes[id] = c
	}
	return c
}

// resume begins a stream with these windows; 0 events are unknown. What is still to be
// acknowledged is acknowledged on it.
func (a *acknowledger) resume(windowBytes, windowEvents uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.bytes, a.events = int(min(windowBytes/4, 1<<30)), acknowledgeEvents
	if windowEvents > 0 {
		a.events = int(min(windowEvents/4, 1<<30))
	}
	a.limit = unreadLimit(windowBytes, windowEvents)
	a.reset()
	for _, c := range a.processes {
		if c.isPending {
			a.schedule(false)
		}
	}
}

// received records what was received of a process. It fails with a [*WindowError] if
// the server ignores its window.
func (a *acknowledger) received(id string, bytes, events int) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.process(id)
	if c.unread += bytes + eventBytes*events; c.unread > a.limit {
		return &WindowError{ProcessID: id, LimitBytes: a.limit}
	}
	return nil
}

// taken records that everything of a process up to last was consumed, with the sizes of
// what is new, and whether to acknowledge at once because it is the last event. last
// never decreases.
func (a *acknowledger) taken(id string, last uint64, bytes, events int, final bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.process(id)
	c.last, c.isPending = last, true
	c.bytes, c.events = c.bytes+bytes, c.events+events
	c.unread -= bytes + eventBytes*events
	a.schedule(final || c.bytes > a.bytes || c.events >= a.events)
}

// schedule wakes the sender, now or acknowledgeIdle after the first event. The caller
// holds mu.
func (a *acknowledger) schedule(now bool) {
	switch {
	case now:
		a.due.Set()
	case a.idle == nil:
		a.idle = time.AfterFunc(acknowledgeIdle, a.due.Set)
	}
}

// reset undoes schedule. The caller holds mu.
func (a *acknowledger) reset() {
	if a.idle != nil {
		a.idle.Stop()
		a.idle = nil
	}
	a.due.Clear()
}

// pending returns the seqs to acknowledge, by process. The sender calls it.
func (a *acknowledger) pending() map[string]uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reset()
	seqs := map[string]uint64{}
	for id, c := range a.processes {
		if c.isPending {
			seqs[id] = c.last
			c.isPending, c.bytes, c.events = false, 0, 0
		}
	}
	return seqs
}

// forget drops what is known of a process.
func (a *acknowledger) forget(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.processes, id)
}
