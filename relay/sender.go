package relay

import (
	mathbits "math/bits"
	"time"

	"github.com/execwire/execwire/internal/buffers"
)

// reorderThreshold is how many segments sent later must have arrived before a
// segment counts as lost.
const reorderThreshold = 3

// segment is a part of a message that is sent or retransmitted.
type segment struct {
	frame        []byte // of internal/buffers: space for the header, followed by the payload and the trace context
	payloadAt    int    // where in frame the payload begins
	payloadEnd   int    // where it ends
	index, count uint32

	sent          time.Time // the last time; zero if never
	order         uint64    // position of the last transmission among all transmissions of the stream
	retransmitted bool      // sent more than once, so its round trip is ambiguous
	received      bool      // the peer has it, but lacks an earlier one
	lost          bool      // to be retransmitted
}

func (s *segment) size() int { return s.payloadEnd - s.payloadAt }

// sender holds the segments of a stream until they are acknowledged.
type sender struct {
	first         uint32    // number of queue[0]
	queue         []segment // segments before unsent have been sent at least once
	unsent        int
	taken         uint32 // number of the segment that was taken last, and may be being sent
	bytes         int    // of all payloads
	lost          int    // segments to be retransmitted
	order         uint64 // of the latest transmission
	recoveryOrder uint64 // transmissions up to this one were in flight when the retry timer fired
	dropped       bool   // segments were dropped without being acknowledged
}

// next returns the number of the next segment that has never been sent.
func (s *sender) next() uint32 { return s.first + uint32(s.unsent) }

// fits reports whether the window has space for a segment of this size. An empty
// window always has.
func (s *sender) fits(size, frames, bytes int) bool {
	return len(s.queue) == 0 || len(s.queue) < frames && s.bytes+size <= bytes
}

// dropOldest drops the oldest segment if it was sent, and reports whether it did.
func (s *sender) dropOldest() bool {
	if s.unsent == 0 {
		return false
	}
	s.dropped = s.dropped || !s.queue[0].received
	s.pop()
	return true
}

// pop removes the oldest segment.
func (s *sender) pop() {
	oldest := popFront(&s.queue)
	if oldest.lost {
		s.lost--
	}
	if !oldest.sent.IsZero() {
		s.unsent--
	}
	s.bytes -= oldest.size()
	if s.first != s.taken {
		buffers.Put(oldest.frame)
	}
	s.first++
}

func (s *sender) push(seg segment) {
	s.queue = append(s.queue, seg)
	s.bytes += seg.size()
}

// validAck reports whether an acknowledgement covers only what was sent.
func (s *sender) validAck(ack, bits uint32) bool {
	return distance(s.next()-1, ack)+mathbits.Len32(bits) <= 0
}

// acknowledge processes an acknowledgement, which must be valid. It returns
// whether it acknowledged anything new, and when the most recently sent of these
// segments was sent, if it was sent only once.
func (s *sender) acknowledge(ack, bits uint32) (progress bool, sent time.Time) {
	var latest uint64
	record := func(seg *segment) {
		if progress = true; seg.order > latest {
			latest, sent = seg.order, seg.sent
			if seg.retransmitted {
				sent = time.Time{}
			}
		}
	}
	for distance(s.first, ack) >= 0 {
		if !s.queue[0].received {
			record(&s.queue[0])
		}
		progress = true
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
		record(&s.queue[at])
		s.queue[at].received = true
		s.unmarkLost(at)
	}
	return progress, sent
}

// markLost schedules a segment for retransmission, unless it has arrived.
func (s *sender) markLost(at int) {
	if seg := &s.queue[at]; !seg.received && !seg.lost {
		seg.lost = true
		s.lost++
	}
}

// unmarkLost cancels a retransmission.
func (s *sender) unmarkLost(at int) {
	if s.queue[at].lost {
		s.queue[at].lost = false
		s.lost--
	}
}

// detectLosses marks the segments that later ones have overtaken.
func (s *sender) detectLosses() {
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
		if later >= reorderThreshold {
			s.markLost(at)
		}
	}
}

// markOldestLost marks the oldest n segments that have not arrived and whose last
// transmission is not after order, and reports whether there was one.
func (s *sender) markOldestLost(n int, order uint64) bool {
	found := false
	for at := 0; at < s.unsent && n > 0; at++ {
		if seg := &s.queue[at]; !seg.received && seg.order <= order {
			s.markLost(at)
			found = true
			n--
		}
	}
	return found
}

// markLostBefore marks all segments that have not arrived and were last sent
// before then.
func (s *sender) markLostBefore(t time.Time) {
	for at := range s.unsent {
		if s.queue[at].sent.Before(t) {
			s.markLost(at)
		}
	}
}

// take returns the next segment to send and its number; nil if there is none.
// Retransmissions go first.
func (s *sender) take(now time.Time) (*segment, uint32) {
	at := s.unsent
	if s.lost > 0 {
		for at = 0; !s.queue[at].lost; at++ {
		}
		s.unmarkLost(at)
		s.queue[at].retransmitted = true
	} else if at == len(s.queue) {
		return nil, 0
	} else {
		s.unsent++
	}
	s.order++
	seg := &s.queue[at]
	seg.sent, seg.order = now, s.order
	s.taken = s.first + uint32(at)
	return seg, s.taken
}

// pending reports whether there is a segment to send now.
func (s *sender) pending() bool { return s.lost > 0 || s.unsent < len(s.queue) }
