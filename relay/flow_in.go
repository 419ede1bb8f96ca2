package relay

import "time"

// handleFrame processes a frame of the stream. The error says why it was dropped.
func (f *flow) handleFrame(now time.Time, in *frame) error {
	f.silenceEnd, f.receivedAny = now.Add(f.config.SilenceTimeout), true
	if in.body == bodyReset {
		f.end(in.reason, true)
		return nil
	}
	if in.hasAck() && f.peer != reliable {
		f.markReliable(now, in)
	}
	if f.ended == nil && f.peer == reliable {
		f.handleAck(now, in)
	}
	if f.ended != nil {
		return nil
	}
	var err error
	switch in.body {
	case bodyData:
		err = f.handleData(now, in)
	case bodyResume:
		if f.peer == reliable {
			// Mark only segments that had time to arrive, so that a peer cannot
			// trigger retransmission of everything at will.
			f.send.markLostBefore(now.Add(-max(f.rtt.srtt, 2*ackDelay)))
			f.ackNow = true
		}
	case bodyHeartbeat:
		if f.peer == reliable {
			f.ackNow = true
		}
	}
	if f.ended == nil && f.peer == reliable && f.receive.bits&1 != 0 {
		f.drainReceived()
	}
	return err
}

// markReliable marks the peer as acknowledging, unless it lacks segments that
// were already dropped here. Those may still be in flight; if they do not arrive
// the stream has to end.
func (f *flow) markReliable(now time.Time, in *frame) {
	ack, bits := normalizeAck(in)
	if f.outOfOrder {
		return
	}
	if !f.send.validAck(ack, bits) {
		f.end(ReasonProtocolError, false)
		return
	}
	if f.send.dropped && distance(f.send.first-1, ack) < 0 {
		if f.missingEnd.IsZero() {
			f.missingEnd = now.Add(f.config.ProbeTimeout)
		}
		return
	}
	f.missingEnd = time.Time{}
	f.peer = reliable
	f.probeEnd, f.probeAt, f.resume = time.Time{}, time.Time{}, false
	if f.carrierLost {
		f.carrierLost = false
		f.send.markLostBefore(now)
	}
	f.ackNow = f.ackNow || f.config.Role == Executor // tells the harness at once
	f.armRetry(now)
}

// normalizeAck returns the acknowledgement of a frame in its canonical form.
func normalizeAck(in *frame) (ack, bits uint32) {
	if in.ack == noSegment && in.bits == 1 {
		return 0, 0
	}
	return in.ack, in.bits
}

// handleAck processes the acknowledgement of a frame from a reliable peer.
func (f *flow) handleAck(now time.Time, in *frame) {
	if !in.hasAck() && f.send.first == 0 && f.fresh() {
		return // 0 and 0 may mean nothing from this peer
	}
	ack, bits := normalizeAck(in)
	if !f.send.validAck(ack, bits) {
		f.end(ReasonProtocolError, false)
		return
	}
	first := f.send.first
	progress, sent := f.send.acknowledge(ack, bits)
	if !progress {
		return
	}
	if !sent.IsZero() {
		f.rtt.addSample(now.Sub(sent))
	}
	f.rtt.backoff = 0
	f.send.detectLosses()
	if f.send.first != first && f.send.recoveryOrder != 0 {
		// What was in flight when the timer fired was probably lost together with
		// the segment that was retransmitted then.
		if !f.send.markOldestLost(2, f.send.recoveryOrder) {
			f.send.recoveryOrder = 0
		}
	}
	f.retryAt = time.Time{}
	f.armRetry(now)
	f.tryFinish()
}

// armRetry starts the retransmission timer if it is not running.
func (f *flow) armRetry(now time.Time) {
	if f.peer == reliable && f.attached && f.send.unsent > 0 && f.retryAt.IsZero() {
		f.retryAt = now.Add(f.rtt.timeout())
	}
}

// handleData processes a segment.
func (f *flow) handleData(now time.Time, in *frame) error {
	if f.peer != reliable {
		return f.handlePlainData(in)
	}
	accepted, reason := f.receive.accept(in)
	if reason != "" {
		f.end(reason, false)
		return nil
	}
	if !accepted {
		f.ackNow = true
		return nil
	}
	f.unacked++
	f.unackedBytes += len(in.payload)
	if f.unacked >= ackedBits/2 || f.unackedBytes >= f.config.WindowBytes/ackParts || f.receive.bits != 0 {
		f.ackNow = true
	}
	if f.ackAt.IsZero() {
		f.ackAt = now.Add(ackDelay)
	}
	return nil
}

// handlePlainData processes a message of a peer that is not known to acknowledge.
func (f *flow) handlePlainData(in *frame) error {
	if in.count != 1 {
		return errSegmented
	}
	if in.seq != f.receive.next {
		f.outOfOrder = true
	}
	f.receive.next = in.seq + 1
	if !in.hasAck() && f.config.Role == Harness {
		f.markPlain()
	}
	if f.ended != nil {
		return nil
	}
	if reason := f.receive.acceptPlain(in); reason != "" {
		f.end(reason, false)
	}
	return nil
}

// drainReceived processes segments that were held for lack of queue space, as far
// as there is space now.
func (f *flow) drainReceived() {
	before := f.receive.next
	if reason := f.receive.drain(); reason != "" {
		f.end(reason, false)
		return
	}
	f.ackNow = f.ackNow || f.receive.next != before
}
