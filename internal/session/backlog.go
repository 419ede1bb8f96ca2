package session

import (
	"github.com/execwire/execwire/internal/eventlog"
)

// backlog is what was spooled of one process and not acknowledged: the events
// up to last, of which those up to acked are taken. The log goes on after last.
// Its records lie one after another in blocks of the spool; places among them
// are counted from the beginning of the first block that it ever had.
//
// At most one goroutine appends, and while it does nobody replays: whoever takes
// the process from the spooler seals the backlog first.
type backlog struct {
	spool *spool

	// Guarded by spool.mu.
	blocks  []uint32
	base    int64 // place of blocks[0]
	tail    int64 // what precedes it was taken
	end     int64
	acked   uint64
	last    uint64
	taken   uint64  // output bytes before tail, over all streams
	bytes   uint64  // output bytes from tail to end
	writing *cursor // who appends; nil: nobody may
	busy    bool    // something is being written after end
	reader  *replay // who reads; one before has no say
}

// begin lets the cursor of a spooler append, which goes on after last.
func (b *backlog) begin(c *cursor) {
	facts := c.log.Stats()
	b.spool.mu.Lock()
	defer b.spool.mu.Unlock()
	b.writing = c
	b.readBy(nil)
	if b.tail == b.end {
		b.acked, b.last, b.taken = facts.Acknowledged, facts.Acknowledged, facts.AcknowledgedBytes
	}
}

// readBy changes who reads. One who waits before learns it. spool.mu is held.
func (b *backlog) readBy(r *replay) {
	before := b.reader
	b.reader = r
	if before != nil {
		before.tell()
	}
}

// seal lets nobody append any more. What is being written does not count.
func (b *backlog) seal() {
	b.spool.mu.Lock()
	b.writing = nil
	b.spool.mu.Unlock()
	b.spool.changed()
}

// isTaken reports whether the log has ended and everything was acknowledged, of
// the backlog and of the log. What moves from one to the other does so under the
// same lock.
func (b *backlog) isTaken(log *eventlog.Log) bool {
	b.spool.mu.Lock()
	defer b.spool.mu.Unlock()
	return b.tail == b.end && isTaken(log)
}

// append adds a batch that c has read, and acknowledges it to the log. It blocks
// on the disk. errSpoolFull and errSpoolSealed have added nothing, and neither
// has any other error.
func (b *backlog) append(c *cursor, encoded []byte, lastSeq, bytes uint64) error {
	blocks, skip, err := b.reserve(c, int64(len(encoded)))
	if err != nil {
		return err
	}
	err = b.spool.writeAt(blocks, skip, encoded)
	b.spool.mu.Lock()
	b.busy = false
	if err == nil && b.writing != c {
		err = errSpoolSealed
	}
	if err == nil && c.owner.Acknowledge(lastSeq) != nil {
		err = errSpoolSealed // nobody owns the log any more
	}
	if err == nil {
		b.end += int64(len(encoded))
		b.last = lastSeq
		b.bytes += bytes
	}
	unused := b.trim()
	b.spool.mu.Unlock()
	b.spool.give(unused)
	return err
}

// reserve returns the blocks for n bytes after end.
func (b *backlog) reserve(c *cursor, n int64) (blocks []uint32, skip int64, err error) {
	b.spool.mu.Lock()
	defer b.spool.mu.Unlock()
	if b.writing != c {
		return nil, 0, errSpoolSealed
	}
	size := b.spool.blockBytes
	have := b.base + int64(len(b.blocks))*size
	if need := (b.end + n - have + size - 1) / size; need > 0 {
		more, ok := b.spool.take(int(need))
		if !ok {
			return nil, 0, errSpoolFull
		}
		b.blocks = append(b.blocks, more...)
	}
	b.busy = true
	blocks, skip = b.stretch(b.end, n)
	return blocks, skip, nil
}

// stretch returns the blocks in which n bytes from a place on lie, and where in
// the first. spool.mu is held.
func (b *backlog) stretch(place, n int64) (blocks []uint32, skip int64) {
	size := b.spool.blockBytes
	first, last := (place-b.base)/size, (place+n-1-b.base)/size
	return append([]uint32(nil), b.blocks[first:last+1]...), (place - b.base) % size
}

// trim takes the blocks out that hold nothing any more. The caller gives them
// back once it has unlocked. spool.mu is held.
func (b *backlog) trim() (unused []uint32) {
	n := int((b.tail - b.base) / b.spool.blockBytes)
	if b.tail == b.end && !b.busy {
		n = len(b.blocks)
	}
	n = min(n, len(b.blocks))
	unused = append(unused, b.blocks[:n]...)
	b.blocks = b.blocks[n:]
	b.base += int64(n) * b.spool.blockBytes
	if len(b.blocks) == 0 && !b.busy {
		b.blocks = nil
		b.tail, b.end = b.base, b.base
	}
	return unused
}

// drop forgets everything up to last. spool.mu is held.
func (b *backlog) drop() (unused []uint32) {
	b.tail = b.end
	b.taken += b.bytes
	b.bytes = 0
	b.acked = max(b.acked, b.last)
	return b.trim()
}

// discard drops the backlog of a process whose record goes.
func (b *backlog) discard() {
	b.spool.mu.Lock()
	b.writing = nil
	b.readBy(nil)
	unused := b.drop()
	b.spool.mu.Unlock()
	b.spool.giveLater(unused)
}

// take takes the log for somebody who reads the backlog first; afterSeq is as
// for newCursor. It returns nil if there is nothing to read in it, or afterSeq
// is beyond it.
func (b *backlog) take(log *eventlog.Log, afterSeq *uint64) (*cursor, error) {
	b.spool.mu.Lock()
	if b.tail == b.end || afterSeq != nil && *afterSeq >= b.last {
		b.readBy(nil)
		unused := b.drop()
		b.spool.mu.Unlock()
		b.spool.giveLater(unused)
		return nil, nil
	}
	defer b.spool.mu.Unlock()
	owner, err := log.Own(b.last)
	if err != nil {
		return nil, err
	}
	after := b.acked
	r := &replay{backlog: b, place: b.tail, limits: log.Limits()}
	if afterSeq != nil {
		after = *afterSeq
		if after < b.acked {
			r.gap = &eventlog.Gap{FirstAvailableSeq: b.acked + 1, DroppedBytes: b.taken, Inexact: after != 0}
		}
		b.acked = max(b.acked, after)
	}
	b.readBy(r)
	return &cursor{log: log, owner: owner, replay: r, after: after}, nil
}
