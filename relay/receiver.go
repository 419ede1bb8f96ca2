package relay

// held is a segment that was received and cannot be taken yet.
type held struct {
	payload      []byte
	index, count uint32
}

// receiver has what a stream has received until the application takes it.
type receiver struct {
	next   uint32 // the number of the segment to be taken next
	heldBy []held // at number modulo 32; nil until one is held
	bits   uint32 // bit i: segment next+i is held
	bytes  int    // of what is held

	partial      []byte // of the message that is being put together
	index, count uint32 // of the segment that comes next of it; count 0 is none

	queue  [][]byte // whole messages
	queued int      // their bytes, with what they count more
	large  int      // what of LargeBytes it has
}

// pool is what all streams share.
type pool struct{ used, limit int }

// draw makes a share of the pool, of which there was old before, new, and reports
// whether there is room.
func (p *pool) draw(old *int, new int) bool {
	if new > *old && p.used+new-*old > p.limit {
		return false
	}
	p.used += new - *old
	*old = new
	return true
}

// verdict is what became of a segment.
type verdict int

const (
	taken     verdict = iota // it is in the queue, or the message being put together
	kept                     // it waits for those before it, or for room
	duplicate                // it was received before
	refused                  // there is no room for it; it has to come again
)

// accept takes a numbered segment in. The reason is why the stream has to end, if
// it has to.
func (r *receiver) accept(f *frame, c *Config, p *pool) (result verdict, reason string) {
	at := distance(r.next, f.seq)
	switch {
	case at < 0:
		return duplicate, ""
	case at >= ackedBits:
		return refused, ""
	case r.bits&(1<<at) != 0:
		return duplicate, ""
	case at == 0:
		room, reason := r.room(len(f.payload), f.count, c, p)
		if reason != "" {
			return refused, reason
		}
		if room {
			if reason := r.take(held{f.payload, f.index, f.count}, false, c); reason != "" {
				return refused, reason
			}
			r.shift()
			return taken, r.settle(c, p)
		}
	}
	if r.bytes+len(f.payload) > c.WindowBytes {
		return refused, ""
	}
	if r.heldBy == nil {
		r.heldBy = make([]held, ackedBits)
	}
	r.heldBy[f.seq%ackedBits] = held{append([]byte(nil), f.payload...), f.index, f.count}
	r.bits |= 1 << at
	r.bytes += len(f.payload)
	return kept, ""
}

// settle takes those that were held as far as there is room.
func (r *receiver) settle(c *Config, p *pool) (reason string) {
	for r.bits&1 != 0 {
		slot := &r.heldBy[r.next%ackedBits]
		room, reason := r.room(len(slot.payload), slot.count, c, p)
		if reason != "" || !room {
			return reason
		}
		part := *slot
		*slot = held{}
		r.bytes -= len(part.payload)
		if reason := r.take(part, true, c); reason != "" {
			return reason
		}
		r.shift()
	}
	if r.bits == 0 {
		r.heldBy = nil
	}
	return ""
}

// shift passes the segment that was taken.
func (r *receiver) shift() {
	r.next++
	r.bits >>= 1
}

// room reports whether there is room for the next segment, of size bytes. A
// message that was begun cannot wait: where it has no room the stream has to end.
func (r *receiver) room(size int, count uint32, c *Config, p *pool) (bool, string) {
	begun := r.count != 0
	if !begun && r.queued >= c.QueueBytes {
		return false, ""
	}
	if !p.draw(&r.large, max(r.large, r.queued+len(r.partial)+size-c.QueueBytes)) {
		if begun {
			return false, ReasonReceiveOverflow
		}
		return false, ""
	}
	return true, ""
}

// take adds a segment to the message that it belongs to. own is whether its
// payload is ours.
func (r *receiver) take(part held, own bool, c *Config) (reason string) {
	if part.index != r.index || r.count != 0 && part.count != r.count {
		return ReasonProtocolError
	}
	if len(r.partial)+len(part.payload) > c.MessageBytes || int64(part.count) > int64(c.MessageBytes) {
		return ReasonMessageTooLarge
	}
	if part.count == 1 {
		if !own {
			part.payload = append([]byte(nil), part.payload...)
		}
		r.enqueue(part.payload)
		return ""
	}
	r.partial = extend(r.partial, part.payload, int(min(int64(part.count)*int64(len(part.payload)), int64(c.MessageBytes))))
	r.index, r.count = r.index+1, part.count
	if r.index == r.count {
		r.enqueue(r.partial)
		r.partial, r.index, r.count = nil, 0, 0
	}
	return ""
}

// extend appends, and grows by what has come rather than by what was announced:
// a peer has to send what it wants kept.
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
	r.queued += len(message) + messageOverhead
}

// plain takes a message of a peer that does not acknowledge, whatever its number.
func (r *receiver) plain(payload []byte, c *Config, p *pool) (reason string) {
	switch {
	case len(payload) > c.MessageBytes:
		return ReasonMessageTooLarge
	case r.queued >= c.PlainQueueBytes, !p.draw(&r.large, max(r.large, r.queued+len(payload)-c.QueueBytes)):
		return ReasonReceiveOverflow
	}
	r.enqueue(append([]byte(nil), payload...))
	return ""
}

// pop returns the oldest message. numbered is whether the peer acknowledges; then
// moved is whether something that was held was taken in its place.
func (r *receiver) pop(numbered bool, c *Config, p *pool) (message []byte, moved bool, reason string) {
	message = r.queue[0]
	r.queue[0] = nil
	if r.queue = r.queue[1:]; len(r.queue) == 0 {
		r.queue = nil
	}
	r.queued -= len(message) + messageOverhead
	p.draw(&r.large, min(r.large, max(0, r.queued+len(r.partial)-c.QueueBytes)))
	if !numbered {
		return message, false, ""
	}
	before := r.next
	reason = r.settle(c, p)
	return message, r.next != before, reason
}

// clear drops what was not put together, and the queue too if told so.
func (r *receiver) clear(queue bool, p *pool) {
	r.heldBy, r.bits, r.bytes = nil, 0, 0
	r.partial, r.index, r.count = nil, 0, 0
	if queue {
		r.queue, r.queued = nil, 0
		p.draw(&r.large, 0)
	}
}
