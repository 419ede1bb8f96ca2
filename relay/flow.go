package relay

import "time"

// ackDelay is how long an acknowledgement may be delayed to be sent with another
// frame.
const ackDelay = 5 * time.Millisecond

// ackParts is the part (1/n) of a window that is acknowledged at once. Who sends output
// waits for acknowledgements, too, with windows of its own: without this JSON-RPC carried
// 40 % less.
const ackParts = 16

// Bounds of the interval between probes, which doubles.
const (
	minProbeInterval = 200 * time.Millisecond
	maxProbeInterval = 2 * time.Second
)

// peerKind is what is known about the peer of a stream.
type peerKind int

const (
	undetermined peerKind = iota // served plainly, but sent segments are kept
	plain                        // it has not shown that it acknowledges
	reliable                     // it acknowledges
)

// flow is the protocol state of one stream. It has no lock and no clock; the
// caller provides both.
type flow struct {
	id     string
	config *Config

	peer        peerKind
	receivedAny bool // a frame of the peer was received
	outOfOrder  bool // the plain peer's numbers are not consecutive and are ignored
	send        sender
	receive     receiver
	rtt         rttEstimator
	ended       *ResetError // nil while the stream is open

	attached    bool // there is a carrier
	carrierLost bool // a carrier was lost while the peer was undetermined

	// Control frames to send.
	resume, heartbeat, ackNow bool
	unacked, unackedBytes     int // segments accepted since the last acknowledgement, and their payloads

	// Deadlines; zero means none. At missingEnd the peer must have acknowledged a
	// segment that was dropped here.
	ackAt, retryAt, probeAt, probeEnd, silenceEnd, finishEnd, missingEnd time.Time

	probes    uint      // probes sent over this carrier
	lastSent  time.Time // when the last frame was sent
	finishing bool      // the stream ends when everything is acknowledged
}

// newFlow returns a new stream.
func newFlow(id string, c *Config, p *pool, now time.Time) *flow {
	f := &flow{id: id, config: c, lastSent: now, receive: receiver{config: c, pool: p, next: c.first}}
	f.send.first = c.first
	f.silenceEnd = now.Add(c.SilenceTimeout)
	if c.Role == Executor {
		f.probeEnd = now.Add(c.ProbeTimeout)
	}
	return f
}

// end ends the stream if it has not ended.
func (f *flow) end(reason string, remote bool) {
	if f.ended != nil {
		return
	}
	f.ended = &ResetError{Reason: reason, Remote: remote}
	f.send = sender{}
	f.receive.clear(!remote)
	f.resume, f.heartbeat, f.ackNow, f.finishing = false, false, false, false
}

// fresh reports whether the peer may not know the stream yet: nothing was
// acknowledged or received.
func (f *flow) fresh() bool {
	return f.send.first == f.config.first && f.receive.next == f.config.first && f.receive.bits == 0
}

// acknowledgement returns ack and ack_bits in wire form. 0 and 0 also means that
// an endpoint does not acknowledge, so "segment 0 only" is encoded as "none, and
// the one after it".
func (f *flow) acknowledgement() (ack, bits uint32) {
	if f.outOfOrder {
		return 0, 0
	}
	ack, bits = f.receive.next-1, f.receive.bits
	if ack == 0 && bits == 0 {
		return noSegment, 1
	}
	return ack, bits
}

// attach handles the start of a carrier.
func (f *flow) attach(now time.Time) {
	f.attached, f.lastSent, f.probes = true, now, 0
	f.rtt.backoff = 0
	switch {
	case f.peer == reliable:
		f.resume = true
		f.send.markLostBefore(now.Add(1))
		f.retryAt = time.Time{}
	case f.probing():
		f.resume = true
		f.probeEnd = now.Add(f.config.ProbeTimeout)
	}
}

// detach handles the end of a carrier. If the peer does not acknowledge it is
// unknown what it has received.
func (f *flow) detach() {
	f.attached = false
	f.ackAt, f.retryAt, f.probeAt = time.Time{}, time.Time{}, time.Time{}
	switch {
	case f.peer == reliable:
	case f.probing():
		f.carrierLost = f.carrierLost || f.send.unsent > 0
		f.probeEnd = time.Time{}
	default:
		f.end(ReasonCarrierLost, false)
	}
}

// makeSpace reports whether a segment of this size may be pushed. For peers that
// are not reliable and are no longer probed it drops sent segments to make space.
func (f *flow) makeSpace(size int) bool {
	for !f.send.fits(size, f.config.WindowFrames, f.config.WindowBytes) {
		if f.peer == reliable || f.probing() || !f.send.dropOldest() {
			return false
		}
	}
	return true
}

// pop returns the oldest received message; one without a payload if there is none.
func (f *flow) pop() received {
	message := f.receive.pop()
	if message.payload != nil && f.peer == reliable && f.ended == nil {
		f.drainReceived()
	}
	return message
}

// finish ends the stream when everything pushed has been acknowledged, or sent if
// the peer does not acknowledge, and at the latest after SilenceTimeout.
func (f *flow) finish(now time.Time) {
	f.finishing = true
	f.finishEnd = now.Add(f.config.SilenceTimeout)
	f.tryFinish()
}

// tryFinish ends the stream if finish was called and nothing is left to wait for.
func (f *flow) tryFinish() {
	acknowledges := f.peer == reliable || f.probing()
	if f.finishing && (len(f.send.queue) == 0 || !acknowledges && !f.send.pending()) {
		f.end(ReasonClosed, false)
	}
}

// probing reports whether the peer has been probed and may still answer.
func (f *flow) probing() bool { return f.peer == undetermined && f.config.Role == Harness }

// deadline returns when fire has work to do; zero means never.
func (f *flow) deadline() time.Time {
	if f.ended != nil {
		return time.Time{}
	}
	var soonest time.Time
	for _, due := range []time.Time{f.ackAt, f.retryAt, f.probeAt, f.probeEnd, f.silenceDeadline(), f.finishEnd, f.heartbeatDeadline(), f.missingEnd} {
		if !due.IsZero() && (soonest.IsZero() || due.Before(soonest)) {
			soonest = due
		}
	}
	return soonest
}

// silenceDeadline returns when the peer counts as silent. A peer that does not
// acknowledge may be silent, unless it never sent anything.
func (f *flow) silenceDeadline() time.Time {
	switch {
	case f.peer == reliable, f.probing():
		return f.silenceEnd
	case f.config.Role == Harness && !f.receivedAny && f.send.next() != f.config.first:
		return f.silenceEnd
	}
	return time.Time{}
}

// heartbeatDeadline returns when a heartbeat is due.
func (f *flow) heartbeatDeadline() time.Time {
	if f.peer != reliable || !f.attached || f.heartbeat || f.resume {
		return time.Time{}
	}
	return f.lastSent.Add(f.config.HeartbeatInterval)
}

// fire processes the deadlines that have passed.
func (f *flow) fire(now time.Time) {
	if f.ended != nil {
		return
	}
	due := func(t time.Time) bool { return !t.IsZero() && !t.After(now) }
	switch {
	case due(f.silenceDeadline()):
		f.end(ReasonPeerSilent, false)
		return
	case due(f.finishEnd):
		f.end(ReasonMessageCut, false)
		return
	case due(f.missingEnd):
		f.end(ReasonProtocolError, false)
		return
	}
	if due(f.probeEnd) {
		f.markPlain()
	}
	if due(f.ackAt) {
		f.ackAt, f.ackNow = time.Time{}, true
	}
	if due(f.probeAt) {
		f.probeAt, f.resume = time.Time{}, true
	}
	if due(f.heartbeatDeadline()) {
		f.heartbeat = true
	}
	if due(f.retryAt) {
		f.retryExpired(now)
	}
}

// retryExpired retransmits the oldest segment. If the peer has received
// everything and does not acknowledge it for lack of space, it sends a heartbeat
// instead.
func (f *flow) retryExpired(now time.Time) {
	f.rtt.backoff++
	if f.send.markOldestLost(1, f.send.order) {
		f.send.recoveryOrder = f.send.order
	} else {
		f.heartbeat = true
	}
	f.retryAt = now.Add(f.rtt.timeout())
}

// markPlain marks the peer as not acknowledging. A harness that has received
// nothing yet continues to probe and keeps sent segments as long as there is
// space.
func (f *flow) markPlain() {
	f.probeEnd = time.Time{}
	if f.peer == reliable {
		return
	}
	f.peer = plain
	if f.carrierLost {
		f.end(ReasonCarrierLost, false)
		return
	}
	if f.knownPlain() {
		f.probeAt, f.resume = time.Time{}, false
		for f.send.dropOldest() {
		}
	}
	f.tryFinish()
}

// knownPlain reports whether the peer has shown that it is plain: a reliable
// executor never sends 0 and 0 to a harness that acknowledges. A harness is not
// probed.
func (f *flow) knownPlain() bool {
	return f.peer == plain && (f.receivedAny || f.config.Role == Executor)
}
