package relay

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/execwire/execwire/internal/tracecontext"
)

// talk is an application's use of one stream.
type talk struct {
	id             string
	state          *streamState // nil for a plain peer
	sent, received int
	segments       []segment // of the message being sent
	ended          bool
}

// ownParty is a table with an application that sends and receives a number of
// messages on each of several streams.
type ownParty struct {
	*table
	rng      *rand.Rand
	messages int // per stream and direction
	most     int // maximum message size
	slow     int // of 1000 attempts, how many do not receive
	streams  int
	peer     interface{ lost() bool }
	talks    []*talk
	err      error
	scratch  []byte
}

func newOwnParty(rng *rand.Rand, c Config, streams, messages, most int) *ownParty {
	c = c.withDefaults()
	o := &ownParty{table: newTable(c), rng: rng, messages: messages, most: most, streams: streams, scratch: make([]byte, 0, 512)}
	o.opened = func(t *streamState) { o.talks = append(o.talks, &talk{id: t.id, state: t}) }
	if c.Role == Harness {
		for i := range streams {
			t := o.begin(string(rune('a'+i)), begin)
			o.update(t)
			o.opened(t)
		}
	}
	return o
}

func (o *ownParty) detach(time.Time) { o.table.detach() }

func (o *ownParty) receive(now time.Time, b []byte) {
	if err := o.table.handleFrame(now, b); err != nil && o.err == nil {
		o.err = fmt.Errorf("the %v dropped a frame of its peer: %w", o.config.Role, err)
	}
}

func (o *ownParty) next(now time.Time) []byte { return o.table.next(now, o.scratch) }

func (o *ownParty) act(time.Time) {
	for _, t := range o.talks {
		o.send(t)
		for o.rng.IntN(1000) >= o.slow && o.receiveMessage(t) {
		}
		if t.state.flow.ended != nil && len(t.state.receive.queue) == 0 {
			t.ended = true
			o.reportEnd(t.state)
		}
	}
}

// send sends what the window has space for.
func (o *ownParty) send(t *talk) {
	for t.state.flow.ended == nil && (len(t.segments) > 0 || t.sent < o.messages) {
		if len(t.segments) == 0 {
			message := text(t.id, o.config.Role, t.sent, o.most)
			size := len(message)
			if t.state.peer == reliable {
				size = o.config.SegmentBytes
			}
			for part := range splitMessage(t.id, message, size, tracecontext.Context{}) {
				t.segments = append(t.segments, part)
			}
			t.sent++
		}
		if !t.state.makeSpace(t.segments[0].size()) {
			return
		}
		t.state.send.push(t.segments[0])
		t.segments = t.segments[1:]
		o.update(t.state)
	}
}

// receiveMessage receives a message, and reports whether there was one.
func (o *ownParty) receiveMessage(t *talk) bool {
	got := t.state.pop().payload
	o.update(t.state)
	if got == nil {
		return false
	}
	if want := text(t.id, 1-o.config.Role, t.received, o.most); !bytes.Equal(got, want) && o.err == nil {
		o.err = fmt.Errorf("the %v got %.30q on stream %s, want %.30q", o.config.Role, got, t.id, want)
	}
	t.received++
	return true
}

func (o *ownParty) finished() bool {
	if len(o.talks) < o.streams && !o.peer.lost() {
		return false
	}
	for _, t := range o.talks {
		all := t.sent == o.messages && len(t.segments) == 0 && t.received == o.messages
		acknowledged := t.state.peer != reliable || len(t.state.send.queue) == 0
		if !t.ended && !(all && acknowledged) {
			return false
		}
	}
	return true
}

// lost reports whether a stream has ended.
func (o *ownParty) lost() bool {
	return slices.ContainsFunc(o.talks, func(t *talk) bool { return t.ended })
}

// check verifies the bounds.
func (o *ownParty) check() error {
	if o.err != nil {
		return o.err
	}
	c, large := &o.config, 0
	for _, t := range o.talks {
		s, r := &t.state.send, &t.state.receive
		large += r.fromPool
		held := 0
		for _, part := range r.held {
			held += len(part.payload)
		}
		switch {
		case len(s.queue) > c.WindowFrames:
			return fmt.Errorf("%d segments are under way, %d may be", len(s.queue), c.WindowFrames)
		case len(s.queue) > 1 && s.bytes > c.WindowBytes:
			return fmt.Errorf("%d bytes are under way, %d may be", s.bytes, c.WindowBytes)
		case r.heldBytes != held:
			return fmt.Errorf("%d bytes are held, and %d are counted", held, r.heldBytes)
		case r.heldBytes > c.WindowBytes:
			return fmt.Errorf("%d bytes are held, %d may be", r.heldBytes, c.WindowBytes)
		case len(r.partial) > c.MessageBytes || cap(r.partial) > 2*c.MessageBytes:
			return fmt.Errorf("%d bytes are being put together in %d, %d may be", len(r.partial), cap(r.partial), c.MessageBytes)
		case t.state.peer == reliable && r.queuedBytes > c.QueueBytes+c.MessageBytes+messageOverhead:
			return fmt.Errorf("%d bytes are in a queue of %d", r.queuedBytes, c.QueueBytes)
		case r.queuedBytes > c.PlainQueueBytes+c.MessageBytes+messageOverhead:
			return fmt.Errorf("%d bytes are in a plain queue of %d", r.queuedBytes, c.PlainQueueBytes)
		}
	}
	if large != o.pool.used || large > c.LargeBytes {
		return fmt.Errorf("the streams have %d bytes of the pool, which gave %d of %d", large, o.pool.used, c.LargeBytes)
	}
	return nil
}

// end ends all streams and verifies that nothing is left over.
func (o *ownParty) end(now time.Time) error {
	for _, t := range o.talks {
		t.state.end(ReasonClosed, false)
		o.update(t.state)
		o.reportEnd(t.state)
	}
	for o.table.next(now, o.scratch) != nil {
	}
	o.table.detach()
	switch {
	case len(o.table.streams) > 0, o.count > 0, len(o.timers) > 0, o.pool.used != 0:
		return fmt.Errorf("left: %d streams, %d counted, %d timers, %d bytes", len(o.table.streams), o.count, len(o.timers), o.pool.used)
	}
	for _, t := range o.talks {
		s, r := &t.state.send, &t.state.receive
		if s.queue != nil || r.queue != nil || r.held != nil || r.partial != nil {
			return fmt.Errorf("stream %s still has something", t.id)
		}
	}
	return nil
}
