package fsops

import "sync"

// noticeOverhead is what a notice or change takes besides its names, in bytes.
const noticeOverhead = 64

// noticeQueue is what the kernel has said to one watch. Who pushes never waits:
// what there is no room for is lost, which the watch finds out.
type noticeQueue struct {
	limit  int
	signal chan struct{} // has room for one; there is something to take

	mu      sync.Mutex
	notices []nodeNotice // guarded by mu
	bytes   int          // guarded by mu; of them
	lost    bool         // guarded by mu
	doubted bool         // guarded by mu; the path may lead elsewhere
	doubts  uint32       // guarded by mu; what was said of names on the way
	err     error        // guarded by mu; why there will be no more
}

// nodeNotice is what happened in or to the directory of a node.
type nodeNotice struct {
	node *node
	notice
}

// push adds a notice.
func (q *noticeQueue) push(to *node, n notice) {
	q.change(func() {
		bytes := len(n.name) + noticeOverhead
		if q.lost || q.bytes+bytes > q.limit {
			q.loseLocked()
			return
		}
		q.notices = append(q.notices, nodeNotice{to, n})
		q.bytes += bytes
	})
}

// lose notes that notices were lost. What there is loses its meaning.
func (q *noticeQueue) lose() { q.change(q.loseLocked) }

func (q *noticeQueue) loseLocked() { q.notices, q.bytes, q.lost = nil, 0, true }

// doubt notes that the path of the watch may lead elsewhere, and what was said of
// a name on the way.
func (q *noticeQueue) doubt(mask uint32) {
	q.change(func() { q.doubted, q.doubts = true, q.doubts|mask })
}

// fail notes that nothing more comes.
func (q *noticeQueue) fail(err error) { q.change(func() { q.err = err }) }

func (q *noticeQueue) change(change func()) {
	q.mu.Lock()
	change()
	q.mu.Unlock()
	select {
	case q.signal <- struct{}{}:
	default:
	}
}

// taken is what was in a queue.
type taken struct {
	notices []nodeNotice
	lost    bool
	doubted bool
	doubts  uint32
	err     error
}

func (q *noticeQueue) take() taken {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := taken{q.notices, q.lost, q.doubted, q.doubts, q.err}
	q.notices, q.bytes, q.lost, q.doubted, q.doubts = nil, 0, false, false, 0
	return t
}
