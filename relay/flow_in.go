package relay

import "time"

// hear takes in a frame of the stream. The error is why it was dropped.
func (f *flow) hear(now time.Time, in *frame) error {
	f.silence, f.heard = now.Add(f.config.SilenceTimeout), true
	if in.body == bodyReset {
		f.end(string(in.reason), true)
		return nil
	}
	if in.shows() && f.peer != reliable {
		f.recognise(now, in)
	}
	if f.ended == nil && f.peer == reliable {
		f.acknowledged(now, in)
	}
	if f.ended != nil {
		return nil
	}
	var err error
	switch in.body {
	case bodyData:
		err = f.data(now, in)
	case bodyResume:
		if f.peer == reliable {
			// Only what had time to arrive: a peer cannot have everything sent
			// as often as it likes.
			f.send.loseSince(now.Add(-max(f.trip.smooth, 2*ackDelay)))
			f.ackNow = true
		}
	case bodyHeartbeat:
		if f.peer == reliable {
			f.ackNow = true
		}
	}
	if f.ended == nil && f.peer == reliable && f.receive.bits&1 != 0 {
		f.settleReceived()
	}
	return err
}

// recognise takes the peer for one that acknowledges, unless it lacks segments
// that were let go. Those may still arrive; if they do not the stream has to end.
func (f *flow) recognise(now time.Time, in *frame) {
	ack, bits := normal(in)
	if f.scrambled {
		return
	}
	if !f.send.reaches(ack, bits) {
		f.end(ReasonProtocolError, false)
		return
	}
	if f.send.dropped && distance(f.send.first-1, ack) < 0 {
		if f.doubted.IsZero() {
			f.doubted = now
		}
		return
	}
	f.doubted = time.Time{}
	f.peer = reliable
	f.settle, f.probe, f.resume = time.Time{}, time.Time{}, false
	if f.cut {
		f.cut = false
		f.send.loseSince(now)
	}
	f.ackNow = f.ackNow || f.config.Role == Executor // so that it is known at once
	f.arm(now)
}

// normal returns the acknowledgement of a frame, whichever way it is said.
func normal(in *frame) (ack, bits uint32) {
	if in.ack == none && in.bits == 1 {
		return 0, 0
	}
	return in.ack, in.bits
}

// acknowledged takes in the acknowledgement of a frame of a peer that acknowledges.
func (f *flow) acknowledged(now time.Time, in *frame) {
	if !in.shows() && f.send.first == 0 && f.fresh() {
		return // of a peer for which 0 and 0 may mean nothing
	}
	ack, bits := normal(in)
	if !f.send.reaches(ack, bits) {
		f.end(ReasonProtocolError, false)
		return
	}
	first := f.send.first
	news, sent := f.send.acknowledge(ack, bits)
	if !news {
		return
	}
	if !sent.IsZero() {
		f.trip.measure(now.Sub(sent))
	}
	f.trip.backoff = 0
	f.send.infer()
	if f.send.first != first && f.send.regain != 0 {
		// What was under way when the timer struck was probably lost with the
		// segment that it had sent again.
		if !f.send.loseOldest(2, f.send.regain) {
			f.send.regain = 0
		}
	}
	f.retry = time.Time{}
	f.arm(now)
	f.depart()
}

// arm sets the timer of what was sent, if it is not set.
func (f *flow) arm(now time.Time) {
	if f.peer == reliable && f.attached && f.send.unsent > 0 && f.retry.IsZero() {
		f.retry = now.Add(f.trip.timeout())
	}
}

// data takes in a segment.
func (f *flow) data(now time.Time, in *frame) error {
	if f.peer != reliable {
		return f.plainData(in)
	}
	result, reason := f.receive.accept(in, f.config, f.pool)
	if reason != "" {
		f.end(reason, false)
		return nil
	}
	if result != taken {
		f.ackNow = true
		return nil
	}
	f.unacked++
	if f.unacked >= ackedBits/2 || f.receive.bits != 0 {
		f.ackNow = true
	}
	if f.ackDue.IsZero() {
		f.ackDue = now.Add(ackDelay)
	}
	return nil
}

// plainData takes in a message of a peer that is not known to acknowledge.
func (f *flow) plainData(in *frame) error {
	if in.count != 1 {
		return errSegmented
	}
	if in.seq != f.receive.next {
		f.scrambled = true
	}
	f.receive.next = in.seq + 1
	if !in.shows() && f.config.Role == Harness {
		f.takeForPlain()
	}
	if f.ended != nil {
		return nil
	}
	if reason := f.receive.plain(in.payload, f.config, f.pool); reason != "" {
		f.end(reason, false)
	}
	return nil
}

// settleReceived takes what was held for want of room, if there is room now.
func (f *flow) settleReceived() {
	before := f.receive.next
	if reason := f.receive.settle(f.config, f.pool); reason != "" {
		f.end(reason, false)
		return
	}
	f.ackNow = f.ackNow || f.receive.next != before
}
