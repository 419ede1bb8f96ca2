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
