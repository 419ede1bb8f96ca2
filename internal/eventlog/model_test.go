package eventlog

import (
	"bytes"
	"io"
	"slices"

	"pgregory.net/rapid"
)

// modelLog is the model of a log: a slice of all events.
type modelLog struct {
	events  []Event // events[i].Seq == i+1
	streams [streamEnd][]byte
	time    int64 // of the last output, which never decreases
}

func (m *modelLog) add(e Event) {
	e.Seq = uint64(len(m.events) + 1)
	if e.Kind == Output {
		e.Offset, e.UnixNano = uint64(len(m.streams[e.Stream])), m.time
		m.streams[e.Stream] = append(m.streams[e.Stream], e.Data...)
	}
	m.events = append(m.events, e)
}

func (m *modelLog) last() uint64 { return uint64(len(m.events)) }

// between counts the output with from <= seq < to.
func (m *modelLog) between(from, to uint64) (bytes, events int) {
	for seq := max(from, 1); seq < to; seq++ {
		if e := m.events[seq-1]; e.Kind == Output {
			bytes += len(e.Data)
			events++
		}
	}
	return bytes, events
}

// seqOf returns the seq of an event of a kind, or 0 if there is none.
func (m *modelLog) seqOf(k Kind) uint64 {
	for _, e := range m.events {
		if e.Kind == k {
			return e.Seq
		}
	}
	return 0
}

// modelCursor checks the results of a cursor. Missing events must be declared as gaps.
type modelCursor struct {
	log     *modelLog
	machine *machine
	cursor  nexter
	next    uint64
	fresh   bool   // no result yet: only the first gap may be inexact
	mayMiss uint64 // of an owner: events before this seq may be missing
	paces   bool
	borrows bool
	holds   bool // borrows until acknowledged
}

// take calls TryNext and checks its result.
func (c *modelCursor) take(t *rapid.T, maxBytes int) {
	b, ok, err := c.cursor.TryNext(maxBytes)
	delete(c.machine.borrowed, c.cursor)
	atEnd := c.next > c.log.last()
	if closed := c.log.seqOf(Closed) != 0; err != nil {
		if err != io.EOF || !closed || !atEnd {
			t.Fatalf("cursor at %d of %d, closed %v: %v", c.next, c.log.last(), closed, err)
		}
		return
	} else if ok == atEnd || atEnd && closed {
		t.Fatalf("cursor at %d of %d, closed %v: ok %v without error", c.next, c.log.last(), closed, ok)
	}
	if !ok {
		return
	}
	if b.Gap != nil {
		c.gap(t, b.Gap)
	}
	if len(b.Events) == 0 {
		t.Fatal("a batch without events")
	}
	c.events(t, b.Events, maxBytes)
	switch m := c.machine; {
	case c.borrows:
		m.borrowed[c.cursor] = slices.Clone(b.Events)
	case c.holds:
		for _, e := range b.Events {
			if c.paces && e.Seq > m.acked {
				m.lent = append(m.lent, e)
			} else {
				m.kept = append(m.kept, e)
			}
		}
	default:
		m.kept = append(m.kept, b.Events...)
	}
	c.fresh = false
}

func (c *modelCursor) gap(t *rapid.T, g *Gap) {
	if g.FirstAvailableSeq <= c.next || g.FirstAvailableSeq > c.log.last() {
		t.Fatalf("cursor at %d got a gap up to %d", c.next, g.FirstAvailableSeq)
	}
	if c.paces && g.FirstAvailableSeq > c.mayMiss {
		t.Fatalf("owner at %d misses unacknowledged events: gap up to %d, allowed up to %d",
			c.next, g.FirstAvailableSeq, c.mayMiss)
	}
	if exited := c.log.seqOf(Exited); exited >= c.next && exited < g.FirstAvailableSeq {
		t.Fatalf("a gap up to %d includes the exit at %d", g.FirstAvailableSeq, exited)
	}
	for seq := c.next; seq < g.FirstAvailableSeq; seq++ {
		if m := c.machine; m.available(seq) && m.noReads == nil {
			t.Fatalf("cursor at %d got a gap up to %d, but %d is available", c.next, g.FirstAvailableSeq, seq)
		}
	}
	if !c.machine.mayFail(g.Cause) {
		t.Fatalf("cursor at %d got a gap up to %d because of %v", c.next, g.FirstAvailableSeq, g.Cause)
	}
	dropped, _ := c.log.between(c.next, g.FirstAvailableSeq)
	if !g.Inexact && g.DroppedBytes != uint64(dropped) {
		t.Fatalf("the gap has %d bytes, want %d", g.DroppedBytes, dropped)
	}
	if g.Inexact && (!c.fresh || g.DroppedBytes < uint64(dropped)) {
		t.Fatalf("inexact gap of %d bytes, want %d, fresh %v", g.DroppedBytes, dropped, c.fresh)
	}
	c.next = g.FirstAvailableSeq
}

func (c *modelCursor) events(t *rapid.T, events []Event, maxBytes int) {
	size := 0
	for _, got := range events {
		want := c.log.events[c.next-1]
		if got.Seq != want.Seq || got.Kind != want.Kind || got.Stream != want.Stream ||
			got.Offset != want.Offset || got.UnixNano != want.UnixNano || !bytes.Equal(got.Data, want.Data) {
			t.Fatalf("event %+v, want %+v", got, want)
		}
		size += len(got.Data)
		c.next++
	}
	if len(events) > 1 && maxBytes > 0 && size > maxBytes {
		t.Fatalf("%d events with %d bytes, asked for %d", len(events), size, maxBytes)
	}
}

// available reports whether the log has an event.
func (m *machine) available(seq uint64) bool {
	b := m.log.tier.find(seq)
	return seq >= m.log.records.first || b != nil && b.next <= seq || seq == m.log.exitedSeq
}

// mayFail reports whether there can be a gap with a cause.
func (m *machine) mayFail(c GapCause) bool {
	switch c {
	case Evicted:
		return true
	case FilesFull:
		return m.files != nil && m.files.Stats().Total < 1<<20
	case DiskFull, WriteFailed:
		return m.files != nil && m.mayLose
	}
	return m.noReads != nil
}

// recount computes the memory that a log holds by walking it.
func recount(l *Log, pinned map[*block]bool) (held, stranded int) {
	alive := map[*block]bool{}
	for seq := l.records.first; seq < l.records.end; seq++ {
		if b := l.records.at(seq).blk; b != nil {
			alive[b] = true
		}
	}
	for _, s := range l.streams {
		if s == nil {
			continue
		}
		if s.cur != nil {
			alive[s.cur] = true
		}
		for _, spans := range [][]span{s.head, s.tail} {
			for _, p := range spans {
				alive[p.blk] = true
			}
		}
	}
	held = len(l.blocks.spare)
	for b := range alive {
		held += len(b.buf)
	}
	for b := range pinned {
		if !alive[b] {
			held += len(b.buf)
			stranded += len(b.buf)
		}
	}
	return held, stranded
}
