package rendezvous

import (
	"slices"
	"time"

	"github.com/execwire/execwire/relay"
)

// minFrameBytes is the minimum size that a frame counts as, which covers the
// overhead of queueing it.
const minFrameBytes = 512

func weight(frame []byte) int64 { return max(int64(len(frame)), minFrameBytes) }

// reservedBytes is what every queue may hold without counting against shared
// budgets, so that streams with little data are not affected by others.
const reservedBytes = 64 << 10

func beyondReserved(bytes int64) int64 { return max(bytes-reservedBytes, 0) }

// sendQueue is the queue of a stream in one direction. It owns its frames. It is
// guarded by the route's mu.
type sendQueue struct {
	stream     *stream
	conn       *peerConn // whose ready list it is in; nil while it is empty
	frames     [][]byte
	bytes      int64
	endsStream bool // the last frame pushed is a reset
	// stuckSince is when a frame was first rejected since the last frame left;
	// zero if none was.
	stuckSince time.Time
}

// fits reports whether a frame fits. An empty queue takes any frame.
func (q *sendQueue) fits(frame []byte, limit int64) bool {
	return len(q.frames) == 0 || q.bytes+weight(frame) <= limit
}

func (q *sendQueue) pop() []byte {
	frame := q.frames[0]
	q.frames[0] = nil
	if q.frames = q.frames[1:]; len(q.frames) == 0 {
		q.frames = nil
	}
	q.bytes -= weight(frame)
	q.stuckSince = time.Time{}
	return frame
}

// clear empties the queue. The route's mu is held.
func (q *sendQueue) clear() {
	if c := q.conn; c != nil {
		c.queuedBytes -= q.bytes
		at := slices.Index(c.ready, q)
		c.ready = slices.Delete(c.ready, at, at+1)
		c.route.queueBudget.release(q.stream.principal, beyondReserved(q.bytes))
	}
	*q = sendQueue{stream: q.stream}
}

// queuedBeside returns the bytes queued on c that count against the principal's
// budget. Queues to an executor belong to several principals and do not count.
func (q *sendQueue) queuedBeside(c *peerConn) int64 {
	if q == q.stream.up {
		return 0
	}
	return c.queuedBytes
}

// enqueue queues a frame in a queue to the peer. reset tells whether it ends the
// stream. It returns c if sendNow is to be called then, or nil. The route's mu is held.
func (c *peerConn) enqueue(q *sendQueue, frame []byte, reset bool) (to *peerConn) {
	if c.overflows(q, frame) {
		return nil
	}
	q.frames, q.bytes, q.endsStream = append(q.frames, frame), q.bytes+weight(frame), reset
	c.queuedBytes += weight(frame)
	c.route.stats.frames.Add(1)
	c.route.stats.bytes.Add(int64(len(frame)))
	if q.conn == nil {
		q.conn = c
		c.ready = append(c.ready, q)
	}
	if !c.serving {
		return nil
	}
	return c
}

// overflows reports whether a frame does not fit, and handles that: the sender
// retransmits it later, unless the queue is stuck or the sender does not
// retransmit; then the stream ends. The route's mu is held.
func (c *peerConn) overflows(q *sendQueue, frame []byte) bool {
	r := c.route
	limit := r.limits.PlainQueueBytes
	retransmit := r.isResumable(q.stream)
	if retransmit {
		limit = r.limits.QueueBytes
	}
	if q.fits(frame, limit) && c.makeSpace(q, weight(frame)) {
		return false
	}
	now := r.clock.now()
	if q.stuckSince.IsZero() {
		q.stuckSince = now
	}
	r.stats.drop(dropFull)
	if !retransmit || now.Sub(q.stuckSince) >= r.limits.StreamGrace {
		r.endStream(q.stream, relay.ReasonSlowConsumer, true, true)
	}
	return true
}

// makeSpace reserves bytes for q in the limits of c, the principal and the hub.
// At the limit of c its longest queue is cleared; at that of the principal, the
// longest of the principal on c. Thus a slow stream does not affect others. The
// route's mu is held.
func (c *peerConn) makeSpace(q *sendQueue, bytes int64) bool {
	r := c.route
	more := beyondReserved(q.bytes+bytes) - beyondReserved(q.bytes)
	for {
		full := c.queuedBytes+bytes > r.limits.ConnectionQueueBytes
		if !full && r.queueBudget.reserve(q.stream.principal, more, q.queuedBeside(c)) {
			return true
		}
		longest := q
		for _, other := range c.ready {
			if other.bytes > longest.bytes && (full || other.stream.principal == q.stream.principal) {
				longest = other
			}
		}
		if longest == q || longest.bytes <= q.bytes+bytes {
			return q.bytes+bytes <= reservedBytes
		}
		if r.isResumable(longest.stream) {
			r.stats.dropped[dropFull].Add(int64(len(longest.frames)))
			longest.clear()
		} else {
			r.endStream(longest.stream, relay.ReasonSlowConsumer, true, true)
		}
	}
}
