package rendezvous

import "time"

// minFrameBytes is the minimum size that a frame counts as, which covers the
// overhead of queueing it.
const minFrameBytes = 512

func weight(frame []byte) int64 { return max(int64(len(frame)), minFrameBytes) }

// reservedBytes is what every queue may hold without counting against shared
// budgets, so that streams with little data are not affected by others.
const reservedBytes = 64 << 10

func beyondReserved(bytes int64) int64 { return max(bytes-reservedBytes, 0) }

// queue holds frames to be sent to one end of a stream, and owns them. It is
// guarded by the route's mu.
type queue struct {
	frames     [][]byte
	bytes      int64
	ready      bool // it is in the ready list of a connection
	endsStream bool // the last frame pushed is a reset
	// stuckSince is when a frame was first rejected since the last frame left;
	// zero if none was.
	stuckSince time.Time
}

// fits reports whether a frame fits. An empty queue takes any frame.
func (q *queue) fits(frame []byte, limit int64) bool {
	return len(q.frames) == 0 || q.bytes+weight(frame) <= limit
}

func (q *queue) push(frame []byte, reset bool) {
	q.frames = append(q.frames, frame)
	q.bytes += weight(frame)
	q.endsStream = reset
}

func (q *queue) pop() []byte {
	frame := q.frames[0]
	q.frames[0] = nil
	if q.frames = q.frames[1:]; len(q.frames) == 0 {
		q.frames = nil
	}
	q.bytes -= weight(frame)
	q.stuckSince = time.Time{}
	return frame
}
