package relay

import "time"

// urgent reports whether there is something to send that does not wait for its
// turn among the data of all streams.
func (f *flow) urgent() bool {
	if f.ended != nil || !f.attached {
		return false
	}
	return f.resume || f.heartbeat || f.bare()
}

// bare reports whether an acknowledgement has to go out by itself: it is due, and
// no data would carry it.
func (f *flow) bare() bool {
	return f.ackNow && f.peer == reliable && !f.send.waiting()
}

// ready reports whether there is a segment to send. While it is not known what a
// peer is that may lack some already, it gets no more: one that does not
// acknowledge would never know.
func (f *flow) ready() bool {
	return f.ended == nil && f.attached && f.send.waiting() && !(f.cut && f.asking())
}

// control appends what urgent reported.
func (f *flow) control(now time.Time, b []byte) []byte {
	ack, bits := f.acknowledgement()
	resume := f.resume || f.heartbeat && f.config.Role == Harness && f.fresh()
	f.said(now)
	switch {
	case resume:
		f.resume, f.heartbeat = false, false
		if f.peer != reliable {
			f.probe = now.Add(min(firstProbe<<min(f.probes, 10), mostProbe))
			f.probes++
		}
		next := f.send.next()
		if f.fresh() {
			next = 0
		}
		return appendResume(b, f.id, ack, bits, next)
	case f.heartbeat:
		f.heartbeat = false
		return appendEmpty(b, f.id, ack, bits, bodyHeartbeat)
	}
	return appendEmpty(b, f.id, ack, bits, bodyAck)
}

// segment returns the frame of the next segment; nil if there is none. It is
// valid for as long as nothing else is sent on the stream.
func (f *flow) segment(now time.Time) []byte {
	part, number := f.send.take(now)
	if part == nil {
		return nil
	}
	ack, bits := f.acknowledgement()
	f.said(now)
	f.arm(now)
	b := part.precede(f.id, ack, bits, number)
	if f.known() {
		f.send.letGo()
	} else if !f.heard && f.peer == plain && number == f.config.first {
		f.silence = now.Add(f.config.SilenceTimeout)
	}
	f.depart()
	return b
}

// precede puts what precedes the payload before it, and returns the frame.
func (s *segment) precede(id string, ack, bits, number uint32) []byte {
	var room [headFixed + maxStreamID]byte
	head := appendData(room[:0], id, ack, bits, number, s.index, s.count, s.size())
	begin := s.room - len(head)
	copy(s.frame[begin:], head)
	return s.frame[begin:]
}

// said notes that a frame goes out, which carries the acknowledgement.
func (f *flow) said(now time.Time) {
	f.spoke = now
	f.ackNow, f.ackDue, f.unacked = false, time.Time{}, 0
}

// cutMessage returns the segments of a message, each with room for its head. To a
// peer that is not known to acknowledge it is one.
func cutMessage(id string, message []byte, size int) func(func(segment) bool) {
	count := (len(message) + size - 1) / size
	return func(yield func(segment) bool) {
		for i := range count {
			payload := message[i*size : min((i+1)*size, len(message))]
			if !yield(newSegment(id, payload, i, count)) {
				return
			}
		}
	}
}

var noHead [headFixed + maxStreamID]byte

// newSegment returns a segment with a copy of its payload.
func newSegment(id string, payload []byte, index, count int) segment {
	room := headFixed + len(id)
	// Appending to what is full copies into memory that is not cleared before.
	return segment{frame: append(noHead[:room:room], payload...), room: room, index: uint32(index), count: uint32(count)}
}
