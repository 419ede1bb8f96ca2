package relay

// heldSegment is a received segment that cannot be processed yet.
type heldSegment struct {
	payload      []byte
	index, count uint32
}

// receiver holds what a stream has received until the application takes it.
type receiver struct {
	next      uint32        // number of the next segment to process
	held      []heldSegment // indexed by number modulo 32; nil while empty
	bits      uint32        // bit i: segment next+i is held
	heldBytes int           // of held segments

	partial      []byte // the message being assembled
	index, count uint32 // expected next of the message being assembled; count 0 means none

	queue       [][]byte // complete messages
	queuedBytes int      // their bytes, with messageOverhead
	fromPool    int      // share of LargeBytes
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

// acceptResult is the outcome for a received segment.
type acceptResult int

const (
	accepted  acceptResult = iota // it is in the queue, or in the message being assembled
	held                          // it waits for earlier segments, or for queue space
	duplicate                     // it was received before
	rejected                      // there is no space for it; it has to be retransmitted
)

// accept processes a numbered segment, whose payload it retains. A reason means that the stream must end.
func (r *receiver) accept(f *frame, c *Config, p *pool) (result acceptResult, reason string) {
	at := distance(r.next, f.seq)
	switch {
	case at < 0:
		return duplicate, ""
	case at >= ackedBits:
		return rejected, ""
	case r.bits&(1<<at) != 0:
		return duplicate, ""
	case at == 0:
		ok, reason := r.reserve(len(f.payload), f.count, c, p)
		if reason != "" {
			return rejected, reason
		}
		if ok {
			if reason := r.assemble(heldSegment{f.payload, f.index, f.count}, c); reason != "" {
				return rejected, reason
			}
			r.advance()
			return accepted, r.drain(c, p)
		}
	}
	if r.heldBytes+len(f.payload) > c.WindowBytes {
		return rejected, ""
	}
	if r.held == nil {
		r.held = make([]heldSegment, ackedBits)
	}
	r.held[f.seq%ackedBits] = heldSegment{f.payload, f.index, f.count}
	r.bits |= 1 << at
	r.heldBytes += len(f.payload)
	return held, ""
}

// drain processes held segments as far as there is queue space.
func (r *receiver) drain(c *Config, p *pool) (reason string) {
	for r.bits&1 != 0 {
		slot := &r.held[r.next%ackedBits]
		ok, reason := r.reserve(len(slot.payload), slot.count, c, p)
		if reason != "" || !ok {
			return reason
		}
		seg := *slot
		*slot = heldSegment{}
		r.heldBytes -= len(seg.payload)
		if reason := r.assemble(seg, c); reason != "" {
			return reason
		}
		r.advance()
	}
	if r.bits == 0 {
		r.held = nil
	}
	return ""
}

// advance moves past the segment that was processed.
func (r *receiver) advance() {
	r.next++
	r.bits >>= 1
}

// reserve reports whether there is space for the next segment, of size bytes. A
// message in progress cannot wait: without space for it the stream must end.
func (r *receiver) reserve(size int, count uint32, c *Config, p *pool) (bool, string) {
	begun := r.count != 0
	if !begun && r.queuedBytes >= c.QueueBytes {
		return false, ""
	}
	if !p.resize(&r.fromPool, max(r.fromPool, r.queuedBytes+len(r.partial)+size-c.QueueBytes)) {
		if begun {
			return false, ReasonReceiveOverflow
		}
		return false, ""
	}
	return true, ""
}

// assemble adds a segment to its message.
func (r *receiver) assemble(seg heldSegment, c *Config) (reason string) {
	if seg.index != r.index || r.count != 0 && seg.count != r.count {
		return ReasonProtocolError
	}
	if len(r.partial)+len(seg.payload) > c.MessageBytes || int64(seg.count) > int64(c.MessageBytes) {
		return ReasonMessageTooLarge
	}
	if seg.count == 1 {
		r.enqueue(seg.payload)
		return ""
	}
	r.partial = extend(r.partial, seg.payload, int(min(int64(seg.count)*int64(len(seg.payload)), int64(c.MessageBytes))))
	r.index, r.count = r.index+1, seg.count
	if r.index == r.count {
		r.enqueue(r.partial)
		r.partial, r.index, r.count = nil, 0, 0
	}
	return ""
}

// extend appends, and grows by what was received rather than by what was
// announced: a peer must send the bytes that it wants buffered.
func extend(b, more []byte, announced int) []byte {
	if need := len(b) + len(more); need > cap(b) {
		larger := make([]byte, len(b), max(need, min(announced, 2*need)))
		copy(larger, b)
		b = larger
	}
	return append(b, more...)
}

func (r *receiver) enqueue(message []byte) {
	r.queue = append(r.queue, message)
	r.queuedBytes += len(message) + messageOverhead
}

// acceptPlain accepts a message of a peer that does not acknowledge, whatever its
// number.
func (r *receiver) acceptPlain(payload []byte, c *Config, p *pool) (reason string) {
	switch {
	case len(payload) > c.MessageBytes:
		return ReasonMessageTooLarge
	case r.queuedBytes >= c.PlainQueueBytes, !p.resize(&r.fromPool, max(r.fromPool, r.queuedBytes+len(payload)-c.QueueBytes)):
		return ReasonReceiveOverflow
	}
	r.enqueue(payload)
	return ""
}

// pop returns the oldest message. numbered tells whether the peer acknowledges;
// then moved reports whether held segments were processed in its place.
func (r *receiver) pop(numbered bool, c *Config, p *pool) (message []byte, moved bool, reason string) {
	message = r.queue[0]
	r.queue[0] = nil
	if r.queue = r.queue[1:]; len(r.queue) == 0 {
		r.queue = nil
	}
	r.queuedBytes -= len(message) + messageOverhead
	p.resize(&r.fromPool, min(r.fromPool, max(0, r.queuedBytes+len(r.partial)-c.QueueBytes)))
	if !numbered {
		return message, false, ""
	}
	before := r.next
	reason = r.drain(c, p)
	return message, r.next != before, reason
}

// clear discards incomplete messages, and optionally the queue.
func (r *receiver) clear(queue bool, p *pool) {
	r.held, r.bits, r.heldBytes = nil, 0, 0
	r.partial, r.index, r.count = nil, 0, 0
	if queue {
		r.queue, r.queuedBytes = nil, 0
		p.resize(&r.fromPool, 0)
	}
}
