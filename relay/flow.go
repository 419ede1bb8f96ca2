package relay

import "time"

// ackDelay is how long an acknowledgement waits for a frame to ride on.
const ackDelay = 5 * time.Millisecond

// Times between probes for a peer that acknowledges: they double.
const (
	firstProbe = 200 * time.Millisecond
	mostProbe  = 2 * time.Second
)

// peerKind is what is known about how the other end of a stream works.
type peerKind int

const (
	unsettled peerKind = iota // served plainly, but what it was sent is kept
	plain                     // it has not shown that it acknowledges
	reliable                  // it acknowledges
)

// flow is the state of one stream that frames and time change. It has no lock and
// no clock: whoever owns it has both.
type flow struct {
	id     string
	config *Config
	pool   *pool

	peer      peerKind
	heard     bool      // the peer has sent something
	scrambled bool      // the plain peer's numbers have no order: they say nothing
	doubted   time.Time // since when a peer acknowledges less than was let go; or zero
	send      sender
	receive   receiver
	trip      roundTrip
	ended     *ResetError // why it is over; nil while it is not

	attached bool // there is a carrier
	cut      bool // one was lost before it was known what the peer is

	// What is to be sent beside data.
	resume, heartbeat, ackNow bool
	unacked                   int // segments taken since the last acknowledgement

	// When something is due; zero is never.
	ackDue, retry, probe, settle, silence, parting time.Time

	probes uint      // how many were sent over this carrier
	spoke  time.Time // when a frame was sent last
	leave  bool      // it ends when all has been acknowledged
}

// newFlow returns the stream as it begins.
func newFlow(id string, c *Config, p *pool, now time.Time) *flow {
	f := &flow{id: id, config: c, pool: p, spoke: now}
	f.send.first, f.receive.next = c.first, c.first
	f.silence = now.Add(c.SilenceTimeout)
	if c.Role == Executor {
		f.settle = now.Add(c.ProbeTimeout)
	}
	return f
}

// end ends the stream, if it has not ended.
func (f *flow) end(reason string, remote bool) {
	if f.ended != nil {
		return
	}
	f.ended = &ResetError{Reason: reason, Remote: remote}
	f.send = sender{}
	f.receive.clear(!remote, f.pool)
	f.resume, f.heartbeat, f.ackNow, f.leave = false, false, false, false
}

// fresh reports whether the peer may never have heard of the stream: nothing was
// acknowledged or received.
func (f *flow) fresh() bool {
	return f.send.first == f.config.first && f.receive.next == f.config.first && f.receive.bits == 0
}

// acknowledgement returns ack and ack_bits as they are on the wire. 0 and 0 would
// say as well that this end acknowledges nothing, so "segment 0 and no other" is
// said as "nothing, and the one after it".
func (f *flow) acknowledgement() (ack, bits uint32) {
	if f.scrambled {
		return 0, 0
	}
	ack, bits = f.receive.next-1, f.receive.bits
	if ack == 0 && bits == 0 {
		return none, 1
	}
	return ack, bits
}

// attach begins a carrier.
func (f *flow) attach(now time.Time) {
	f.attached, f.spoke, f.probes = true, now, 0
	f.trip.backoff = 0
	switch {
	case f.peer == reliable:
		f.resume = true
		f.send.loseSince(now.Add(1))
		f.retry = time.Time{}
	case f.asking():
		f.resume = true
		f.settle = now.Add(f.config.ProbeTimeout)
	}
}

// detach ends a carrier. Of a peer that does not acknowledge nobody knows what it
// has received.
func (f *flow) detach() {
	f.attached = false
	f.ackDue, f.retry, f.probe = time.Time{}, time.Time{}, time.Time{}
	switch {
	case f.peer == reliable:
	case f.asking():
		f.cut = f.cut || f.send.unsent > 0
		f.settle = time.Time{}
	default:
		f.end(ReasonCarrierLost, false)
	}
}

// room reports whether a segment of this size may be pushed. Peers that are not
// known to acknowledge lose what was kept for them to make room, once they
// are not going to be asked.
func (f *flow) room(size int) bool {
	for !f.send.fits(size, f.config.WindowFrames, f.config.WindowBytes) {
		if f.peer == reliable || f.asking() || !f.send.letGo() {
			return false
		}
	}
	return true
}

// push has a segment sent.
func (f *flow) push(part segment) { f.send.push(part) }

// pop returns the oldest message that was received; nil if there is none.
func (f *flow) pop() []byte {
	if len(f.receive.queue) == 0 {
		return nil
	}
	message, moved, reason := f.receive.pop(f.peer == reliable && f.ended == nil, f.config, f.pool)
	if reason != "" {
		f.end(reason, false)
	}
	f.ackNow = f.ackNow || moved
	return message
}

// finish ends the stream when all that was pushed has been acknowledged, or sent
// if the peer does not acknowledge. After SilenceTimeout it gives the rest up.
func (f *flow) finish(now time.Time) {
	f.leave = true
	f.parting = now.Add(f.config.SilenceTimeout)
	f.depart()
}

// depart ends the stream if it is to leave and can.
func (f *flow) depart() {
	acknowledges := f.peer == reliable || f.asking()
	if f.leave && (len(f.send.queue) == 0 || !acknowledges && !f.send.waiting()) {
		f.end(ReasonClosed, false)
	}
}

// asking reports whether the peer has been asked if it acknowledges, and may
// still answer.
func (f *flow) asking() bool { return f.peer == unsettled && f.config.Role == Harness }

// deadline returns when strike has something to do; zero is never.
func (f *flow) deadline() time.Time {
	if f.ended != nil {
		return time.Time{}
	}
	var soonest time.Time
	for _, due := range []time.Time{f.ackDue, f.retry, f.probe, f.settle, f.silent(), f.parting, f.beat(), f.certain()} {
		if !due.IsZero() && (soonest.IsZero() || due.Before(soonest)) {
			soonest = due
		}
	}
	return soonest
}

// silent returns when the peer will have been silent for too long. One that does
// not acknowledge may be silent, but not if it never was anything else.
func (f *flow) silent() time.Time {
	switch {
	case f.peer == reliable, f.asking():
		return f.silence
	case f.config.Role == Harness && !f.heard && f.send.next() != f.config.first:
		return f.silence
	}
	return time.Time{}
}

// beat returns when a sign of life is due.
func (f *flow) beat() time.Time {
	if f.peer != reliable || !f.attached || f.heartbeat || f.resume {
		return time.Time{}
	}
	return f.spoke.Add(f.config.HeartbeatInterval)
}

// certain returns when a peer that acknowledges less than was let go must have
// received it.
func (f *flow) certain() time.Time {
	if f.doubted.IsZero() {
		return time.Time{}
	}
	return f.doubted.Add(f.config.ProbeTimeout)
}

// strike does what is due.
func (f *flow) strike(now time.Time) {
	if f.ended != nil {
		return
	}
	due := func(t time.Time) bool { return !t.IsZero() && !t.After(now) }
	switch {
	case due(f.silent()):
		f.end(ReasonPeerSilent, false)
		return
	case due(f.parting):
		f.end(ReasonMessageCut, false)
		return
	case due(f.certain()):
		f.end(ReasonProtocolError, false)
		return
	}
	if due(f.settle) {
		f.takeForPlain()
	}
	if due(f.ackDue) {
		f.ackDue, f.ackNow = time.Time{}, true
	}
	if due(f.probe) {
		f.probe, f.resume = time.Time{}, true
	}
	if due(f.beat()) {
		f.heartbeat = true
	}
	if due(f.retry) {
		f.miss(now)
	}
}

// miss has the oldest segment sent again, or asks a peer that has all that was
// sent and does not acknowledge it because it has no room.
func (f *flow) miss(now time.Time) {
	f.trip.backoff++
	if f.send.loseOldest(1, f.send.order) {
		f.send.regain = f.send.order
	} else {
		f.heartbeat = true
	}
	f.retry = now.Add(f.trip.timeout())
}

// takeForPlain takes the peer for one that does not acknowledge. A harness that
// has heard nothing yet goes on asking, and keeps what was sent for as long as
// there is room.
func (f *flow) takeForPlain() {
	f.settle = time.Time{}
	if f.peer == reliable {
		return
	}
	f.peer = plain
	if f.cut {
		f.end(ReasonCarrierLost, false)
		return
	}
	if f.known() {
		f.probe, f.resume = time.Time{}, false
		for f.send.letGo() {
		}
	}
	f.depart()
}

// known reports whether the peer, being plain, has been heard to be: an executor
// that acknowledges never says 0 and 0 to a harness that does. Nobody asks a
// harness.
func (f *flow) known() bool { return f.peer == plain && (f.heard || f.config.Role == Executor) }
