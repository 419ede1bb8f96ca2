package relay

import "time"

// Losses are inferred when this many segments that were sent later have come.
const laterAcked = 3

// segment is a part of a message that is, or may have to be, sent.
type segment struct {
	frame        []byte // room for what precedes the payload, and the payload
	room         int    // where in frame the payload begins
	index, count uint32

	sent     time.Time // when last; zero if never
	order    uint64    // of the last time it was sent, among all sendings of the stream
	again    bool      // it was sent more than once
	received bool      // the peer has it, and lacks one before it
	lost     bool      // it is to be sent again
}

func (s *segment) size() int { return len(s.frame) - s.room }

// sender has what a stream sends until it is acknowledged.
type sender struct {
	first   uint32    // the number of queue[0]
	queue   []segment // those before unsent have been sent at least once
	unsent  int
	bytes   int    // of all payloads
	lost    int    // how many are to be sent again
	order   uint64 // of the latest sending
	regain  uint64 // sendings up to this one were under way when a timer struck
	dropped bool   // segments were let go that nobody had acknowledged
}

// next is the number of the next segment that has never been sent.
func (s *sender) next() uint32 { return s.first + uint32(s.unsent) }

// fits reports whether there is room for a segment of this size. One alone always
// has room.
func (s *sender) fits(size, frames, bytes int) bool {
	return len(s.queue) == 0 || len(s.queue) < frames && s.bytes+size <= bytes
}

// letGo forgets the oldest segment if it was sent, and reports whether it did.
func (s *sender) letGo() bool {
	if s.unsent == 0 {
		return false
	}
	s.dropped = s.dropped || !s.queue[0].received
	s.pop()
	return true
}

// pop removes the oldest segment.
func (s *sender) pop() {
	oldest := &s.queue[0]
	if oldest.lost {
		s.lost--
	}
	if !oldest.sent.IsZero() {
		s.unsent--
	}
	s.bytes -= oldest.size()
	*oldest = segment{}
	s.queue = s.queue[1:]
	s.first++
	if len(s.queue) == 0 {
		s.queue = nil
	}
}

func (s *sender) push(part segment) {
	s.queue = append(s.queue, part)
	s.bytes += part.size()
}

// reaches reports whether an acknowledgement is not beyond what was sent.
func (s *sender) reaches(ack, bits uint32) bool {
	length := 0
	for b := bits; b != 0; b >>= 1 {
		length++
	}
	return distance(s.next()-1, ack)+length <= 0
}

// acknowledge takes an acknowledgement in, which reaches only what was sent. It
// returns whether that was news, and when the latest of the segments that came
// to be known to have arrived was sent, if it was sent once.
func (s *sender) acknowledge(ack, bits uint32) (news bool, sent time.Time) {
	var latest uint64
	note := func(part *segment) {
		if news = true; part.order > latest {
			latest, sent = part.order, part.sent
			if part.again {
				sent = time.Time{}
			}
		}
	}
	for distance(s.first, ack) >= 0 {
		if !s.queue[0].received {
			note(&s.queue[0])
		}
		news = true
		s.pop()
	}
	for i := range ackedBits {
		if bits&(1<<i) == 0 {
			continue
		}
		at := distance(s.first, ack+1+uint32(i))
		if at < 0 || at >= s.unsent || s.queue[at].received {
			continue
		}
		note(&s.queue[at])
		s.queue[at].received = true
		s.keep(at)
	}
	return news, sent
}

// lose has a segment sent again, unless it has arrived.
func (s *sender) lose(at int) {
	if part := &s.queue[at]; !part.received && !part.lost {
		part.lost = true
		s.lost++
	}
}

// keep does not have a segment sent again.
func (s *sender) keep(at int) {
	if s.queue[at].lost {
		s.queue[at].lost = false
		s.lost--
	}
}

// infer loses the segments that others have overtaken.
func (s *sender) infer() {
	for at := range s.unsent {
		if s.queue[at].received {
			continue
		}
		later := 0
		for after := at + 1; after < s.unsent; after++ {
			if s.queue[after].received && s.queue[after].order > s.queue[at].order {
				later++
			}
		}
		if later >= laterAcked {
			s.lose(at)
		}
	}
}

// loseOldest loses the oldest segments that were sent no later than the sending
// of this order and have not arrived, n of them at most, and reports whether
// there was one.
func (s *sender) loseOldest(n int, order uint64) bool {
	found := false
	for at := 0; at < s.unsent && n > 0; at++ {
		if part := &s.queue[at]; !part.received && part.order <= order {
			s.lose(at)
			found = true
			n--
		}
	}
	return found
}

// loseSince loses all that has not arrived and was last sent before then.
func (s *sender) loseSince(then time.Time) {
	for at := range s.unsent {
		if s.queue[at].sent.Before(then) {
			s.lose(at)
		}
	}
}

// take returns the segment to be sent now and its number; nil if there is none.
// Those sent again go first.
func (s *sender) take(now time.Time) (*segment, uint32) {
	at := s.unsent
	if s.lost > 0 {
		for at = 0; !s.queue[at].lost; at++ {
		}
		s.keep(at)
		s.queue[at].again = true
	} else if at == len(s.queue) {
		return nil, 0
	} else {
		s.unsent++
	}
	s.order++
	part := &s.queue[at]
	part.sent, part.order = now, s.order
	return part, s.first + uint32(at)
}

// waiting reports whether there is a segment to be sent now.
func (s *sender) waiting() bool { return s.lost > 0 || s.unsent < len(s.queue) }
