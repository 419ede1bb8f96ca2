package fsops

import (
	"sync"

	"github.com/execwire/execwire/internal/notify"
)

// eventOverhead is the memory of an event or change besides its names, in bytes.
const eventOverhead = 64

// eventQueue has the pending events of one watch. Pushing never blocks: events beyond the limit are
// lost, which the watch notices.
type eventQueue struct {
	limit  int
	signal notify.Signal // there are events

	mu     sync.Mutex
	queued queuedEvents // guarded by mu
	bytes  int          // guarded by mu; of the events
}

// queuedEvents is what is in a queue.
type queuedEvents struct {
	events      []nodeEvent
	lost        bool
	pathChanged bool   // the path may resolve to another file
	pathEvents  uint32 // masks of events on names in the path
	err         error  // why there will be no more
}

// nodeEvent is what happened in or to the directory of a node.
type nodeEvent struct {
	node *node
	inotifyEvent
}

// push adds an event.
func (q *eventQueue) push(to *node, n inotifyEvent) {
	q.change(func() {
		bytes := len(n.name) + eventOverhead
		if q.queued.lost || q.bytes+bytes > q.limit {
			q.loseLocked()
			return
		}
		q.queued.events = append(q.queued.events, nodeEvent{to, n})
		q.bytes += bytes
	})
}

// lose records that events were lost, and drops those that are pending.
func (q *eventQueue) lose() { q.change(q.loseLocked) }

func (q *eventQueue) loseLocked() { q.queued.events, q.bytes, q.queued.lost = nil, 0, true }

// notePathChange records that the path of the watch may resolve to another file, and the mask of the event.
func (q *eventQueue) notePathChange(mask uint32) {
	q.change(func() { q.queued.pathChanged, q.queued.pathEvents = true, q.queued.pathEvents|mask })
}

// fail records that there will be no more events.
func (q *eventQueue) fail(err error) { q.change(func() { q.queued.err = err }) }

func (q *eventQueue) change(change func()) {
	q.mu.Lock()
	change()
	q.mu.Unlock()
	q.signal.Set()
}

// take returns what is in the queue and empties it.
func (q *eventQueue) take() queuedEvents {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := q.queued
	q.queued, q.bytes = queuedEvents{err: t.err}, 0
	return t
}
