package relay

import (
	"github.com/execwire/execwire/internal/buffers"
	"github.com/execwire/execwire/internal/tracecontext"
)

// heldSegment is a received segment that cannot be processed yet.
type heldSegment struct {
	payload      []byte
	buffer       []byte // of internal/buffers, with the payload
	index, count uint32
	trace        tracecontext.Context
}

// received is a message for the application.
type received struct {
	payload []byte
	buffer  []byte               // of internal/buffers, with the payload
	trace   tracecontext.Context // of its first segment
}

// size is the memory that the message counts in the queue.
func (m received) size() int {
	return len(m.payload) + len(m.trace.Parent()) + len(m.trace.State()) + messageOverhead
}

// receiver holds what a stream has received until the application takes it.
type receiver struct {
	config *Config
	pool   *pool

	next      uint32        // number of the next segment to process
	held      []heldSegment // indexed by number modulo 32; nil while empty
	bits      uint32        // bit i: segment next+i is held
	heldBytes int           // of held segments

	partial      []byte               // the message being assembled
	trace        tracecontext.Context // of that
	index, count uint32               // expected next of the message being assembled; count 0 means none

	queue       []received // complete messages
	queuedBytes int        // their size
	fromPool    int        // share of LargeBytes
}

// pool is the memory budget that all streams share.
type pool struct{ used, limit int }

// resize changes a share of the pool from *old to size, and reports whether the
// pool allows it.
func (p *pool) resize(old *int, size int) bool {
	if size > *old && p.used+size-*old > p.limit {
		return false
	}
	p.used += size - *old
	*old = size
	return true
}

// accept processes a numbered segment, whose buffer it takes from f if it retains the
// payload, and reports whether it is in the queue or in the message being assembled.
// Otherwise it was received before, waits for earlier segments or queue space, or has to
// be retransmitted for lack of space. A reason means that the stream must end.
func (r *receiver) accept(f *frame) (accepted bool, reason string) {
	at := distance(r.next, f.seq)
	seg := heldSegment{f.payload, f.buffer, f.index, f.count, f.trace}
	switch {
	case at < 0, at >= ackedBits, r.bits&(1<<at) != 0:
		return false, ""
	case at == 0:
		accepted, reason = r.process(seg)
		if reason != "" {
			return false, reason
		}
		if accepted {
			f.buffer = nil
			return true, r.drain()
		}
	}
	if r.heldBytes+len(seg.payload) > r.config.WindowBytes {
		return false, ""
	}
	if r.held == nil {
		r.held = make([]heldSegment, ackedBits)
	}
	r.held[f.seq%ackedBits] = seg
	f.buffer = nil
	r.bits |= 1 << at
	r.heldBytes += len(seg.payload)
	return false, ""
}

// drain processes held segments as far as there is queue space.
func (r *receiver) drain() (reason string) {
	for r.bits&1 != 0 {
		slot := &r.held[r.next%ackedBits]
		if processed, reason := r.process(*slot); !processed {
			return reason
		}
		r.heldBytes -= len(slot.payload)
		*slot = heldSegment{}
	}
	if r.bits == 0 {
		r.held = nil
	}
	return ""
}

// process adds the next segment to its message, if there is space for it.
func (r *receiver) process(seg heldSegment) (processed bool, reason string) {
	if ok, reason := r.reserve(len(seg.payload)); !ok {
		return false, reason
	}
	if reason := r.assemble(seg); reason != "" {
		return false, reason
	}
	r.next++
	r.bits >>= 1
	return true, ""
}

// reserve reports whether there is space for the next segment, of size bytes. A
// message in progress cannot wait: without space for it the stream must end.
func (r *receiver) reserve(size int) (ok bool, reason string) {
	begun := r.count != 0
	if !begun && r.queuedBytes >= r.config.QueueBytes {
		return false, ""
	}
	ok = r.pool.resize(&r.fromPool, max(r.fromPool, r.queuedBytes+len(r.partial)+size-r.config.QueueBytes))
	if !ok && begun {
		return false, ReasonReceiveOverflow
	}
	return ok, ""
}

// assemble adds a segment to its message.
func (r *receiver) assemble(seg heldSegment) (reason string) {
	limit := r.config.MessageBytes
	if seg.index != r.index || r.count != 0 && seg.count != r.count {
		return ReasonProtocolError
	}
	if len(r.partial)+len(seg.payload) > limit || int64(seg.count) > int64(limit) {
		return ReasonMessageTooLarge
	}
	if seg.count == 1 {
		r.enqueue(received{seg.payload, seg.buffer, seg.trace})
		return ""
	}
	if seg.index == 0 {
		r.trace = seg.trace
	}
	r.partial = extend(r.partial, seg.payload, int(min(int64(seg.count)*int64(len(seg.payload)), int64(limit))))
	buffers.Put(seg.buffer)
	r.index, r.count = r.index+1, seg.count
	if r.index == r.count {
		r.enqueue(received{r.partial, r.partial, r.trace})
		r.partial, r.trace, r.index, r.count = nil, tracecontext.Context{}, 0, 0
	}
	return ""
}

// extend appends, and grows by what was received rather than by what was
// announced: a peer must send the bytes that it wants buffered.
func extend(b, more []byte, announced int) []byte {
	if need := len(b) + len(more); need > cap(b) {
		larger := append(buffers.Get(max(need, min(announced, 2*need))), b...)
		buffers.Put(b)
		b = larger
	}
	return append(b, more...)
}

func (r *receiver) enqueue(message received) {
	r.queue = append(r.queue, message)
	r.queuedBytes += message.size()
}

// acceptPlain accepts a message of a peer that does not acknowledge, whatever its
// number.
func (r *receiver) acceptPlain(f *frame) (reason string) {
	payload := f.payload
	switch {
	case len(payload) > r.config.MessageBytes:
		return ReasonMessageTooLarge
	case r.queuedBytes >= r.config.PlainQueueBytes, !r.pool.resize(&r.fromPool, max(r.fromPool, r.queuedBytes+len(payload)-r.config.QueueBytes)):
		return ReasonReceiveOverflow
	}
	r.enqueue(received{payload, f.buffer, f.trace})
	f.buffer = nil
	return ""
}

// pop returns the oldest message; one without a payload if there is none.
func (r *receiver) pop() received {
	if len(r.queue) == 0 {
		return received{}
	}
	message := popFront(&r.queue)
	r.queuedBytes -= message.size()
	r.pool.resize(&r.fromPool, min(r.fromPool, max(0, r.queuedBytes+len(r.partial)-r.config.QueueBytes)))
	return message
}

// clear discards incomplete messages, and optionally the queue.
func (r *receiver) clear(queue bool) {
	r.held, r.bits, r.heldBytes = nil, 0, 0
	r.partial, r.trace, r.index, r.count = nil, tracecontext.Context{}, 0, 0
	if queue {
		r.queue, r.queuedBytes = nil, 0
		r.pool.resize(&r.fromPool, 0)
	}
}
