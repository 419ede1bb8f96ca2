package relay

import (
	"fmt"
	"testing"
	"time"
)

// flowing returns a stream of an executor whose harness acknowledges, and its
// table. It has received segment 0, a message "0".
func flowing(t *testing.T, c Config) (*table, *line) {
	t.Helper()
	table := hostile(t, c)
	tell(t, table, dataFrame("s", none, 0, 0, 0, 1, "0"))
	sends(t, table, begin, frame{body: bodyAck, ack: none, bits: 1})
	return table, table.lines["s"]
}

// sends wants these frames to be what a table sends now.
func sends(t *testing.T, table *table, now time.Time, want ...frame) {
	t.Helper()
	for _, w := range want {
		b := table.next(now, nil)
		if b == nil {
			t.Fatalf("it sends nothing, want %+v", w)
		}
		f, err := decode(b)
		if err != nil {
			t.Fatal(err)
		}
		if f.body != w.body || f.ack != w.ack || f.bits != w.bits || f.seq != w.seq {
			t.Fatalf("it sends %+v, want %+v", f, w)
		}
	}
	if b := table.next(now, nil); b != nil {
		t.Fatalf("it sends %x too", b)
	}
}

// TestOvertakenSegment: what three later ones have overtaken is sent again at
// once, before the timer strikes.
func TestOvertakenSegment(t *testing.T) {
	table, one := flowing(t, Config{})
	for i := range 5 {
		one.push(newSegment("s", fmt.Append(nil, i), 0, 1))
		table.arrange(one)
		sends(t, table, begin, frame{body: bodyData, ack: none, bits: 1, seq: uint32(i)})
	}
	tell(t, table, appendEmpty(nil, "s", 0, 0b10, bodyAck))
	tell(t, table, appendEmpty(nil, "s", 0, 0b110, bodyAck))
	sends(t, table, begin)
	tell(t, table, appendEmpty(nil, "s", 0, 0b1110, bodyAck))
	sends(t, table, begin, frame{body: bodyData, ack: none, bits: 1, seq: 1})
}

// TestSegmentsOutsideTheWindow: repetitions of what is held count nothing, and
// what lies beyond the window does not take the place of what is held.
func TestSegmentsOutsideTheWindow(t *testing.T) {
	table, one := flowing(t, Config{QueueBytes: 1})
	for range 2 {
		for i := uint32(1); i <= ackedBits; i++ {
			tell(t, table, dataFrame("s", none, 0, i, 0, 1, fmt.Sprint(i)))
		}
	}
	held := 0
	for _, part := range one.receive.heldBy {
		held += len(part.payload)
	}
	if one.receive.bytes != held || one.receive.bits != ^uint32(0) {
		t.Errorf("%d bytes are held and %d counted, with bits %b", held, one.receive.bytes, one.receive.bits)
	}
	tell(t, table, dataFrame("s", none, 0, ackedBits+1, 0, 1, "beyond"))
	for i := range ackedBits + 1 {
		if got := one.pop(); string(got) != fmt.Sprint(i) {
			t.Fatalf("got %q, want message %d", got, i)
		}
	}
	if got := one.pop(); got != nil || one.receive.bytes != 0 || one.receive.heldBy != nil {
		t.Errorf("got %q, and %d bytes are held", got, one.receive.bytes)
	}
}

// TestRoomIsToldAtOnce: a peer that has to wait for room learns of it as soon as
// there is some.
func TestRoomIsToldAtOnce(t *testing.T) {
	table, one := flowing(t, Config{QueueBytes: 1})
	tell(t, table, dataFrame("s", none, 0, 1, 0, 1, "1"))
	sends(t, table, begin, frame{body: bodyAck, ack: 0, bits: 1})
	if got := one.pop(); string(got) != "0" {
		t.Fatalf("got %q", got)
	}
	table.arrange(one)
	sends(t, table, begin, frame{body: bodyAck, ack: 1})
}

// TestRecognisedAfterACut: what a peer was sent over a carrier that was lost, and
// before it showed that it acknowledges, is sent again as soon as it shows it.
func TestRecognisedAfterACut(t *testing.T) {
	c, err := Config{Role: Harness}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	table := newTable(c)
	table.attach(begin)
	one := table.begin("s", begin)
	one.push(newSegment("s", []byte("hello"), 0, 1))
	table.arrange(one)
	sends(t, table, begin, frame{body: bodyResume, ack: none}, frame{body: bodyData, ack: none})
	table.detach()
	later := begin.Add(time.Second)
	table.attach(later)
	sends(t, table, later, frame{body: bodyResume, ack: none})
	if err := table.hear(later, appendEmpty(nil, "s", none, 0, bodyAck)); err != nil {
		t.Fatal(err)
	}
	sends(t, table, later, frame{body: bodyData, ack: none})
}

// TestPeerThatLacksWhatWasForgotten: one that shows late that it acknowledges, and
// was not sent everything in a carrier that lived, has time to get the rest.
func TestPeerThatLacksWhatWasForgotten(t *testing.T) {
	for name, gets := range map[string]bool{"it comes": true, "it never comes": false} {
		table := hostile(t, Config{WindowFrames: 1})
		tell(t, table, dataFrame("s", 0, 0, 0, 0, 1, "0"))
		one := table.lines["s"]
		for i := range 3 {
			if !one.room(1) {
				t.Fatal("a peer that does not acknowledge makes its sender wait")
			}
			one.push(newSegment("s", fmt.Append(nil, i), 0, 1))
			table.arrange(one)
			sends(t, table, begin, frame{body: bodyData, ack: none, bits: 1, seq: uint32(i)})
		}
		tell(t, table, appendEmpty(nil, "s", 0, 0, bodyAck))
		if one.peer == reliable {
			t.Errorf("%s: the peer counts as one that acknowledges, and nobody has what it lacks", name)
		}
		if gets {
			tell(t, table, appendEmpty(nil, "s", 2, 0, bodyAck))
		}
		table.strike(begin.Add(table.config.ProbeTimeout))
		switch {
		case gets && (one.flow.ended != nil || one.peer != reliable):
			t.Errorf("%s: the stream ended with %v, or its peer counts as plain", name, one.flow.ended)
		case !gets && (one.flow.ended == nil || one.flow.ended.Reason != ReasonProtocolError):
			t.Errorf("%s: the stream ended with %v", name, one.flow.ended)
		}
	}
}

// TestLargeMessagesOfAllStreams: what all streams have beyond their queues is
// bounded. A message that has begun ends its stream, others wait, and there is
// room again when one was taken.
func TestLargeMessagesOfAllStreams(t *testing.T) {
	table := hostile(t, Config{QueueBytes: 100, LargeBytes: 250})
	part := string(make([]byte, 100))
	for i := range uint32(3) {
		tell(t, table, dataFrame("first", none, 0, i, i, 3, part))
	}
	first := table.lines["first"]
	tell(t, table, dataFrame("small", none, 0, 0, 0, 1, part))
	tell(t, table, dataFrame("begun", none, 0, 0, 0, 3, part))
	begun := table.lines["begun"]
	tell(t, table, dataFrame("begun", none, 0, 1, 1, 3, part))
	if begun.flow.ended == nil || begun.flow.ended.Reason != ReasonReceiveOverflow {
		t.Errorf("a message in pieces beyond what there is ended with %v", begun.flow.ended)
	}
	tell(t, table, dataFrame("whole", none, 0, 0, 0, 1, part+part))
	whole := table.lines["whole"]
	if got := whole.pop(); got != nil || whole.flow.ended != nil {
		t.Errorf("a message beyond what there is came with %d bytes, or ended with %v", len(got), whole.flow.ended)
	}
	if small := table.lines["small"]; small.flow.ended != nil || len(small.pop()) != len(part) {
		t.Error("a stream that keeps to its queue suffers")
	}
	if got := first.pop(); len(got) != 3*len(part) || table.pool.used != 0 {
		t.Errorf("got %d bytes, and %d are counted still", len(got), table.pool.used)
	}
	tell(t, table, appendEmpty(nil, "whole", none, 0, bodyHeartbeat))
	if got := whole.pop(); len(got) != 2*len(part) {
		t.Errorf("when there is room again %d bytes came", len(got))
	}
}

// TestTimerBacksOff: what is not acknowledged is sent again after times that
// double, and what was sent twice tells nothing about the round trip.
func TestTimerBacksOff(t *testing.T) {
	table, one := flowing(t, Config{SilenceTimeout: time.Hour, HeartbeatInterval: time.Minute})
	one.push(newSegment("s", []byte("0"), 0, 1))
	table.arrange(one)
	data := frame{body: bodyData, ack: none, bits: 1}
	now := begin
	sends(t, table, now, data)
	for _, wait := range []time.Duration{1, 2, 4, 8, 10, 10} {
		now = now.Add(wait*time.Second - 1)
		table.strike(now)
		sends(t, table, now)
		now = now.Add(1)
		table.strike(now)
		sends(t, table, now, data)
	}
	now = now.Add(time.Second)
	if err := table.hear(now, appendEmpty(nil, "s", none, 1, bodyAck)); err != nil {
		t.Fatal(err)
	}
	if one.trip.measured || one.trip.timeout() != firstTimeout {
		t.Errorf("a segment that was sent often was measured: %+v", one.trip)
	}
	one.push(newSegment("s", []byte("1"), 0, 1))
	table.arrange(one)
	data.seq = 1
	sends(t, table, now, data)
	if err := table.hear(now.Add(time.Second), appendEmpty(nil, "s", 1, 0, bodyAck)); err != nil {
		t.Fatal(err)
	}
	if one.trip.smooth != time.Second {
		t.Errorf("a round trip of a second was measured as %v", one.trip.smooth)
	}
}
