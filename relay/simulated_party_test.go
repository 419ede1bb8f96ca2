package relay

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// talk is what an application does with one stream.
type talk struct {
	id             string
	line           *line // nil of a plain peer
	sent, received int
	parts          []segment // of the message being sent
	ended          bool
}

// ours is a table of ours with an application that sends and receives a number of
// messages on each of some streams.
type ours struct {
	*table
	rng      *rand.Rand
	messages int // each way
	most     int // bytes of a message
	slow     int // of 1000 times, the application does not receive
	streams  int
	peer     interface{ lost() bool }
	talks    []*talk
	err      error
	scratch  []byte
}

func newOurs(rng *rand.Rand, c Config, streams, messages, most int) *ours {
	c, err := c.withDefaults()
	if err != nil {
		panic(err)
	}
	o := &ours{table: newTable(c), rng: rng, messages: messages, most: most, streams: streams, scratch: make([]byte, 0, 512)}
	o.opened = func(one *line) { o.talks = append(o.talks, &talk{id: one.id, line: one}) }
	if c.Role == Harness {
		for i := range streams {
			one := o.begin(string(rune('a'+i)), begin)
			o.arrange(one)
			o.opened(one)
		}
	}
	return o
}

func (o *ours) detach(time.Time) { o.table.detach() }

func (o *ours) hear(now time.Time, b []byte) {
	if err := o.table.hear(now, b); err != nil && o.err == nil {
		o.err = fmt.Errorf("the %v dropped a frame of its peer: %w", o.config.Role, err)
	}
}

func (o *ours) next(now time.Time) []byte { return o.table.next(now, o.scratch) }

func (o *ours) act(time.Time) {
	for _, one := range o.talks {
		o.speak(one)
		for o.rng.IntN(1000) >= o.slow && o.listen(one) {
		}
		if one.line.flow.ended != nil && len(one.line.receive.queue) == 0 {
			one.ended = true
			o.tell(one.line)
		}
	}
}

// speak sends what there is room for.
func (o *ours) speak(one *talk) {
	for one.line.flow.ended == nil && (len(one.parts) > 0 || one.sent < o.messages) {
		if len(one.parts) == 0 {
			message := text(one.id, o.config.Role, one.sent, o.most)
			size := len(message)
			if one.line.peer == reliable {
				size = o.config.SegmentBytes
			}
			for part := range cutMessage(one.id, message, size) {
				one.parts = append(one.parts, part)
			}
			one.sent++
		}
		if !one.line.room(one.parts[0].size()) {
			return
		}
		one.line.push(one.parts[0])
		one.parts = one.parts[1:]
		o.arrange(one.line)
	}
}

// listen receives a message, and reports whether there was one.
func (o *ours) listen(one *talk) bool {
	got := one.line.pop()
	o.arrange(one.line)
	if got == nil {
		return false
	}
	if want := text(one.id, 1-o.config.Role, one.received, o.most); !bytes.Equal(got, want) && o.err == nil {
		o.err = fmt.Errorf("the %v got %.30q on stream %s, want %.30q", o.config.Role, got, one.id, want)
	}
	one.received++
	return true
}

func (o *ours) finished() bool {
	if len(o.talks) < o.streams && !o.peer.lost() {
		return false
	}
	for _, one := range o.talks {
		all := one.sent == o.messages && len(one.parts) == 0 && one.received == o.messages
		acknowledged := one.line.peer != reliable || len(one.line.send.queue) == 0
		if !one.ended && !(all && acknowledged) {
			return false
		}
	}
	return true
}

// lost reports whether a stream has ended.
func (o *ours) lost() bool {
	return slices.ContainsFunc(o.talks, func(one *talk) bool { return one.ended })
}

// check looks at the bounds.
func (o *ours) check() error {
	if o.err != nil {
		return o.err
	}
	c, large := &o.config, 0
	for _, one := range o.talks {
		s, r := &one.line.send, &one.line.receive
		large += r.large
		held := 0
		for _, part := range r.heldBy {
			held += len(part.payload)
		}
		switch {
		case len(s.queue) > c.WindowFrames:
			return fmt.Errorf("%d segments are under way, %d may be", len(s.queue), c.WindowFrames)
		case len(s.queue) > 1 && s.bytes > c.WindowBytes:
			return fmt.Errorf("%d bytes are under way, %d may be", s.bytes, c.WindowBytes)
		case r.bytes != held:
			return fmt.Errorf("%d bytes are held, and %d are counted", held, r.bytes)
		case r.bytes > c.WindowBytes:
			return fmt.Errorf("%d bytes are held, %d may be", r.bytes, c.WindowBytes)
		case len(r.partial) > c.MessageBytes || cap(r.partial) > 2*c.MessageBytes:
			return fmt.Errorf("%d bytes are being put together in %d, %d may be", len(r.partial), cap(r.partial), c.MessageBytes)
		case one.line.peer == reliable && r.queued > c.QueueBytes+c.MessageBytes+messageOverhead:
			return fmt.Errorf("%d bytes are in a queue of %d", r.queued, c.QueueBytes)
		case r.queued > c.PlainQueueBytes+c.MessageBytes+messageOverhead:
			return fmt.Errorf("%d bytes are in a plain queue of %d", r.queued, c.PlainQueueBytes)
		}
	}
	if large != o.pool.used || large > c.LargeBytes {
		return fmt.Errorf("the streams have %d bytes of the pool, which gave %d of %d", large, o.pool.used, c.LargeBytes)
	}
	return nil
}

// leave ends what is left, and looks whether anything is kept.
func (o *ours) leave(now time.Time) error {
	for _, one := range o.talks {
		one.line.end(ReasonClosed, false)
		o.arrange(one.line)
		o.tell(one.line)
	}
	for o.table.next(now, o.scratch) != nil {
	}
	o.table.detach()
	switch {
	case len(o.lines) > 0, o.count > 0, len(o.timers) > 0, o.pool.used != 0:
		return fmt.Errorf("left: %d streams, %d counted, %d timers, %d bytes", len(o.lines), o.count, len(o.timers), o.pool.used)
	}
	for _, one := range o.talks {
		s, r := &one.line.send, &one.line.receive
		if s.queue != nil || r.queue != nil || r.heldBy != nil || r.partial != nil {
			return fmt.Errorf("stream %s still has something", one.id)
		}
	}
	return nil
}
