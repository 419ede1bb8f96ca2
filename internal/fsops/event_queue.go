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

	mu          sync.Mutex
	events      []nodeEvent // guarded by mu
	bytes       int         // guarded by mu; of them
	lost        bool        // guarded by mu
	pathChanged bool        // guarded by mu; the path may resolve to another file
	pathEvents  uint32      // guarded by mu; masks of events on names in the path
	err         error       // guarded by mu; why there will be no more
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
		if q.lost || q.bytes+bytes > q.limit {
			q.loseLocked()
			return
		}
		q.events = append(q.events, nodeEvent{to, n})
		q.bytes += bytes
	})
}

// lose records that events were lost, and drops those that are pending.
func (q *eventQueue) lose() { q.change(q.loseLocked) }

func (q *eventQueue) loseLocked() { q.events, q.bytes, q.lost = nil, 0, true }

// notePathChange records that the path of the watch may resolve to another file, and the mask of the event.
func (q *eventQueue) notePathChange(mask uint32) {
	q.change(func() { q.pathChanged, q.pathEvents = true, q.pathEvents|mask })
}

// fail records that there will be no more events.
func (q *eventQueue) fail(err error) { q.change(func() { q.err = err }) }

func (q *eventQueue) change(change func()) {
	q.mu.Lock()
	change()
	q.mu.Unlock()
	q.signal.Set()
}

// taken is what was in a queue.
type taken struct {
	events      []nodeEvent
	lost        bool
	pathChanged bool
	pathEvents  uint32
	err         error
}

func (q *eventQueue) take() taken {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := taken{q.events, q.lost, q.pathChanged, q.pathEvents, q.err}
	q.events, q.bytes, q.lost, q.pathChanged, q.pathEvents = nil, 0, false, false, 0
	return t
}
