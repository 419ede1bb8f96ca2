package relay

import (
	"fmt"
	"testing"
	"time"
)

// flowing returns the table of an executor with one stream whose harness
// acknowledges. It has received segment 0, the message "0".
func flowing(t *testing.T, c Config) (*table, *streamState) {
	t.Helper()
	table := hostile(t, c)
	deliver(t, table, dataFrame("s", noSegment, 0, 0, 0, 1, "0"))
	sends(t, table, begin, frame{body: bodyAck, ack: noSegment, bits: 1})
	return table, table.streams["s"]
}

// sends checks which frames the table sends now.
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

// A segment that three later ones have overtaken is retransmitted at once, before
// the retry timer fires.
func TestSender_OvertakenSegment_IsRetransmitted(t *testing.T) {
	table, one := flowing(t, Config{})
	for i := range 5 {
		one.send.push(newSegment("s", fmt.Append(nil, i), 0, 1))
		table.update(one)
		sends(t, table, begin, frame{body: bodyData, ack: noSegment, bits: 1, seq: uint32(i)})
	}
	deliver(t, table, appendEmpty(nil, "s", 0, 0b10, bodyAck))
	deliver(t, table, appendEmpty(nil, "s", 0, 0b110, bodyAck))
	sends(t, table, begin)
	deliver(t, table, appendEmpty(nil, "s", 0, 0b1110, bodyAck))
	sends(t, table, begin, frame{body: bodyData, ack: noSegment, bits: 1, seq: 1})
}

// Duplicates of held segments do not count, and segments beyond the window do not
// replace held ones.
func TestReceiver_SegmentsOutsideWindow(t *testing.T) {
	table, one := flowing(t, Config{QueueBytes: 1})
	for range 2 {
		for i := uint32(1); i <= ackedBits; i++ {
			deliver(t, table, dataFrame("s", noSegment, 0, i, 0, 1, fmt.Sprint(i)))
		}
	}
	held := 0
	for _, part := range one.receive.held {
		held += len(part.payload)
	}
	if one.receive.heldBytes != held || one.receive.bits != ^uint32(0) {
		t.Errorf("%d bytes are held and %d counted, with bits %b", held, one.receive.heldBytes, one.receive.bits)
	}
	deliver(t, table, dataFrame("s", noSegment, 0, ackedBits+1, 0, 1, "beyond"))
	for i := range ackedBits + 1 {
		if got := one.pop().payload; string(got) != fmt.Sprint(i) {
			t.Fatalf("got %q, want message %d", got, i)
		}
	}
	if got := one.pop().payload; got != nil || one.receive.heldBytes != 0 || one.receive.held != nil {
		t.Errorf("got %q, and %d bytes are held", got, one.receive.heldBytes)
	}
}

// A peer that waits for queue space is notified as soon as there is some.
func TestReceiver_FreedSpace_IsAcknowledged(t *testing.T) {
	table, one := flowing(t, Config{QueueBytes: 1})
	deliver(t, table, dataFrame("s", noSegment, 0, 1, 0, 1, "1"))
	sends(t, table, begin, frame{body: bodyAck, ack: 0, bits: 1})
	if got := one.pop().payload; string(got) != "0" {
		t.Fatalf("got %q", got)
	}
	table.update(one)
	sends(t, table, begin, frame{body: bodyAck, ack: 1})
}

// What was sent over a lost carrier to a peer of undetermined kind is
// retransmitted as soon as the peer acknowledges.
func TestSender_ReliableAfterCut_Retransmits(t *testing.T) {
	c := Config{Role: Harness}.withDefaults()
	table := newTable(c)
	table.attach(begin)
	one := table.begin("s", begin)
	one.send.push(newSegment("s", []byte("hello"), 0, 1))
	table.update(one)
	sends(t, table, begin, frame{body: bodyResume, ack: noSegment}, frame{body: bodyData, ack: noSegment})
	table.detach()
	later := begin.Add(time.Second)
	table.attach(later)
	sends(t, table, later, frame{body: bodyResume, ack: noSegment})
	if err := table.handleFrame(later, appendEmpty(nil, "s", noSegment, 0, bodyAck)); err != nil {
		t.Fatal(err)
	}
	sends(t, table, later, frame{body: bodyData, ack: noSegment})
}

// A peer that acknowledges late, on a carrier that was not cut, has time to
// receive the segments already dropped here.
func TestSender_LateReliablePeer_GetsGracePeriod(t *testing.T) {
	for name, gets := range map[string]bool{"it comes": true, "it never comes": false} {
		table := hostile(t, Config{WindowFrames: 1})
		deliver(t, table, dataFrame("s", 0, 0, 0, 0, 1, "0"))
		one := table.streams["s"]
		for i := range 3 {
			if !one.makeSpace(1) {
				t.Fatal("a peer that does not acknowledge makes its sender wait")
			}
			one.send.push(newSegment("s", fmt.Append(nil, i), 0, 1))
			table.update(one)
			sends(t, table, begin, frame{body: bodyData, ack: noSegment, bits: 1, seq: uint32(i)})
		}
		deliver(t, table, appendEmpty(nil, "s", 0, 0, bodyAck))
		if one.peer == reliable {
			t.Errorf("%s: the peer counts as one that acknowledges, and nobody has what it lacks", name)
		}
		if gets {
			deliver(t, table, appendEmpty(nil, "s", 2, 0, bodyAck))
		}
		table.fireTimers(begin.Add(table.config.ProbeTimeout))
		switch {
		case gets && (one.flow.ended != nil || one.peer != reliable):
			t.Errorf("%s: the stream ended with %v, or its peer counts as plain", name, one.flow.ended)
		case !gets && (one.flow.ended == nil || one.flow.ended.Reason != ReasonProtocolError):
			t.Errorf("%s: the stream ended with %v", name, one.flow.ended)
		}
	}
}

// What all streams queue beyond QueueBytes is bounded. A message in progress ends
// its stream, other streams wait, and receiving a message makes space.
func TestReceiver_LargeBytes_AreBounded(t *testing.T) {
	table := hostile(t, Config{QueueBytes: 100, LargeBytes: 250})
	part := string(make([]byte, 100))
	for i := range uint32(3) {
		deliver(t, table, dataFrame("first", noSegment, 0, i, i, 3, part))
	}
	first := table.streams["first"]
	deliver(t, table, dataFrame("small", noSegment, 0, 0, 0, 1, part))
	deliver(t, table, dataFrame("begun", noSegment, 0, 0, 0, 3, part))
	begun := table.streams["begun"]
	deliver(t, table, dataFrame("begun", noSegment, 0, 1, 1, 3, part))
	if begun.flow.ended == nil || begun.flow.ended.Reason != ReasonReceiveOverflow {
		t.Errorf("a message in pieces beyond what there is ended with %v", begun.flow.ended)
	}
	deliver(t, table, dataFrame("whole", noSegment, 0, 0, 0, 1, part+part))
	whole := table.streams["whole"]
	if got := whole.pop().payload; got != nil || whole.flow.ended != nil {
		t.Errorf("a message beyond what there is came with %d bytes, or ended with %v", len(got), whole.flow.ended)
	}
	if small := table.streams["small"]; small.flow.ended != nil || len(small.pop().payload) != len(part) {
		t.Error("a stream that keeps to its queue suffers")
	}
	if got := first.pop().payload; len(got) != 3*len(part) || table.pool.used != 0 {
		t.Errorf("got %d bytes, and %d are counted still", len(got), table.pool.used)
	}
	deliver(t, table, appendEmpty(nil, "whole", noSegment, 0, bodyHeartbeat))
	if got := whole.pop().payload; len(got) != 2*len(part) {
		t.Errorf("when there is space again %d bytes came", len(got))
	}
}

// The retransmission timeout doubles, and retransmitted segments give no
// round-trip samples.
func TestSender_RetryTimer_BacksOff(t *testing.T) {
	table, one := flowing(t, Config{SilenceTimeout: time.Hour, HeartbeatInterval: time.Minute})
	one.send.push(newSegment("s", []byte("0"), 0, 1))
	table.update(one)
	data := frame{body: bodyData, ack: noSegment, bits: 1}
	now := begin
	sends(t, table, now, data)
	for _, wait := range []time.Duration{1, 2, 4, 8, 10, 10} {
		now = now.Add(wait*time.Second - 1)
		table.fireTimers(now)
		sends(t, table, now)
		now = now.Add(1)
		table.fireTimers(now)
		sends(t, table, now, data)
	}
	now = now.Add(time.Second)
	if err := table.handleFrame(now, appendEmpty(nil, "s", noSegment, 1, bodyAck)); err != nil {
		t.Fatal(err)
	}
	if one.rtt.measured || one.rtt.timeout() != initialTimeout {
		t.Errorf("a segment that was sent often was measured: %+v", one.rtt)
	}
	one.send.push(newSegment("s", []byte("1"), 0, 1))
	table.update(one)
	data.seq = 1
	sends(t, table, now, data)
	if err := table.handleFrame(now.Add(time.Second), appendEmpty(nil, "s", 1, 0, bodyAck)); err != nil {
		t.Fatal(err)
	}
	if one.rtt.srtt != time.Second {
		t.Errorf("a round trip of a second was measured as %v", one.rtt.srtt)
	}
}
