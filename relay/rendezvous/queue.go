package rendezvous

import (
	"time"

	"github.com/execwire/execwire/relay"
)

// minFrameBytes is what a frame counts as at least: what it takes to keep one.
const minFrameBytes = 512

func weight(frame []byte) int64 { return max(int64(len(frame)), minFrameBytes) }

// ownBytes is what every queue may hold whatever others do. It does not count for
// what the hub holds in all: who sends little does not lose because others send
// much.
const ownBytes = 64 << 10

func beyondOwn(bytes int64) int64 { return max(bytes-ownBytes, 0) }

// queue is what waits to be sent to one end of a stream. It is guarded by the
// exchange's mu.
type queue struct {
	frames  [][]byte
	bytes   int64
	waiting bool // it is among those of a line that have something
	last    bool // the last frame that came is a reset
	// stuck is since when frames did not fit and none has left; zero if all
	// fitted since one left.
	stuck time.Time
}

// fits reports whether a frame has room. One frame always has.
func (q *queue) fits(frame []byte, most int64) bool {
	return len(q.frames) == 0 || q.bytes+weight(frame) <= most
}

func (q *queue) push(frame []byte) {
	q.frames = append(q.frames, frame)
	q.bytes += weight(frame)
	q.last = relay.IsReset(frame)
}

func (q *queue) pop() []byte {
	frame := q.frames[0]
	q.frames[0] = nil
	if q.frames = q.frames[1:]; len(q.frames) == 0 {
		q.frames = nil
	}
	q.bytes -= weight(frame)
	q.stuck = time.Time{}
	return frame
}
