package relay

import (
	"time"

	"github.com/execwire/execwire/internal/buffers"
	"github.com/execwire/execwire/internal/tracecontext"
)

// urgent reports whether there is a control frame to send: also for an
// acknowledgement that is due if no data frame would carry it.
func (f *flow) urgent() bool {
	if f.ended != nil || !f.attached {
		return false
	}
	return f.resume || f.heartbeat || f.ackNow && f.peer == reliable && !f.send.pending()
}

// ready reports whether there is a segment to send. After a lost carrier a peer
// of undetermined kind gets none: if it does not acknowledge it would never
// notice the gap.
func (f *flow) ready() bool {
	return f.ended == nil && f.attached && f.send.pending() && !(f.carrierLost && f.probing())
}

// control appends the control frame that urgent reported.
func (f *flow) control(now time.Time, b []byte) []byte {
	ack, bits := f.acknowledgement()
	resume := f.resume || f.heartbeat && f.config.Role == Harness && f.fresh()
	f.frameSent(now)
	switch {
	case resume:
		f.resume, f.heartbeat = false, false
		if f.peer != reliable {
			f.probeAt = now.Add(min(minProbeInterval<<min(f.probes, 10), maxProbeInterval))
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

// segment returns the frame of the next segment, or nil. It is valid until
// something else is sent on the stream.
func (f *flow) segment(now time.Time) []byte {
	seg, number := f.send.take(now)
	if seg == nil {
		return nil
	}
	ack, bits := f.acknowledgement()
	f.frameSent(now)
	f.armRetry(now)
	b := seg.prependHeader(f.id, ack, bits, number)
	if f.knownPlain() {
		f.send.dropOldest()
	} else if !f.receivedAny && f.peer == plain && number == f.config.first {
		f.silenceEnd = now.Add(f.config.SilenceTimeout)
	}
	f.tryFinish()
	return b
}

// prependHeader writes the header before the payload and returns the frame.
func (s *segment) prependHeader(id string, ack, bits, number uint32) []byte {
	var space [headerFixed + maxStreamID]byte
	head := appendData(space[:0], id, ack, bits, number, s.index, s.count, s.size())
	begin := s.payloadAt - len(head)
	copy(s.frame[begin:], head)
	return s.frame[begin:]
}

// frameSent updates the state after a frame, which carries the acknowledgement.
func (f *flow) frameSent(now time.Time) {
	f.lastSent = now
	f.ackNow, f.ackAt, f.unacked, f.unackedBytes = false, time.Time{}, 0, 0
}

// splitMessage yields the segments of a message, each with space for its header. The
// first one has the trace context of the message.
func splitMessage(id string, message []byte, size int, trace tracecontext.Context) func(func(segment) bool) {
	count := (len(message) + size - 1) / size
	return func(yield func(segment) bool) {
		for i := range count {
			payload := message[i*size : min((i+1)*size, len(message))]
			seg := newSegment(id, payload, i, count)
			if i == 0 {
				seg.frame = appendTrace(seg.frame, trace)
			}
			if !yield(seg) {
				return
			}
		}
	}
}

// newSegment returns a segment with a copy of the payload.
func newSegment(id string, payload []byte, index, count int) segment {
	space := headerFixed + len(id)
	frame := append(buffers.Get(space + len(payload))[:space], payload...)
	return segment{frame: frame, payloadAt: space, payloadEnd: len(frame), index: uint32(index), count: uint32(count)}
}
