package relay

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	relayv1 "github.com/execwire/execwire/gen/go/codex/exec_server/relay/v1"
)

// FuzzFrame: whatever is decoded can be routed by its stream id, as what it is, and is what
// the schema says.
func FuzzFrame(f *testing.F) {
	for _, g := range golden {
		f.Add(g.ours)
		f.Add(append(g.ours, g.ours...))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var schema relayv1.RelayMessageFrame
		if proto.Unmarshal(b, &schema) != nil {
			return
		}
		h, err := ParseHeader(b)
		_, isReset := schema.GetBody().(*relayv1.RelayMessageFrame_Reset_)
		if validStreamID(schema.GetStreamId()) != (err == nil) || err == nil && (h.Stream != schema.GetStreamId() || h.Reset != isReset) {
			t.Fatalf("it is of stream %q, but routed as %q, %v; reset %v, %v", schema.GetStreamId(), h.Stream, err, isReset, h.Reset)
		}
		in, err := decode(b)
		if err == nil && (in.stream != h.Stream || (in.body == bodyReset) != h.Reset) {
			t.Fatalf("decoded as %+v, and routed as %+v", in, h)
		}
		data := schema.GetData()
		if err == nil && (in.ack != schema.GetAck() || in.bits != schema.GetAckBits() || schema.GetVersion() != version ||
			in.seq != data.GetSeq() || in.index != data.GetSegmentIndex() || in.count != data.GetSegmentCount() || !bytes.Equal(in.payload, data.GetPayload()) ||
			in.next != schema.GetResume().GetNextSeq() || in.reason != schema.GetReset_().GetReason()) {
			t.Fatalf("decoded as %+v, and by the schema as %v", in, &schema)
		}
	})
}

// FuzzReassembly: for any segments in any order, held data stays within its
// bounds and messages are what the segments contain.
func FuzzReassembly(f *testing.F) {
	f.Add([]byte{0, 0, 1, 3, 1, 0, 2, 9, 2, 1, 2, 9, 255, 0, 0, 0})
	f.Add([]byte{2, 2, 3, 4, 1, 1, 3, 4, 0, 0, 3, 4, 0, 0, 3, 4, 255, 1, 1, 1})
	f.Fuzz(func(t *testing.T, script []byte) {
		c := Config{SegmentBytes: 8, WindowBytes: 64, MessageBytes: 100, QueueBytes: 150, LargeBytes: 50}.withDefaults()
		p := pool{limit: c.LargeBytes}
		r := receiver{config: &c, pool: &p, next: noSegment - 2}
		for ; len(script) >= 4; script = script[4:] {
			if script[0] == 255 {
				if r.pop().payload != nil {
					if reason := r.drain(); reason != "" {
						return
					}
				}
				continue
			}
			before := r.next
			in := frame{seq: noSegment - 2 + uint32(script[0]), index: uint32(script[1]), count: uint32(script[2]), payload: make([]byte, 1+int(script[3]))}
			accepted, reason := r.accept(&in)
			if reason != "" {
				return
			}
			if accepted != (r.next != before) {
				t.Fatalf("accepted is %t, and the next number went from %d to %d", accepted, before, r.next)
			}
			if r.heldBytes > c.WindowBytes || len(r.partial) > c.MessageBytes || p.used > p.limit || p.used != r.fromPool ||
				r.queuedBytes > c.QueueBytes+c.MessageBytes+messageOverhead {
				t.Fatalf("beyond its bounds: %d held, %d put together, %d of the pool, %d queued", r.heldBytes, len(r.partial), p.used, r.queuedBytes)
			}
		}
		r.clear(true)
		if p.used != 0 {
			t.Fatalf("%d bytes of the pool are not given back", p.used)
		}
	})
}

// FuzzHostilePeer: for any frames of a peer, neither end fails, memory stays
// within its bounds, and the frames sent in return are valid and not more
// numerous than those received.
func FuzzHostilePeer(f *testing.F) {
	for _, role := range []byte{0, 1} {
		f.Add(append([]byte{role}, bytes.Repeat([]byte{5, 0, 1, 2, 3, 4, 5, 6}, 20)...))
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) < 1 {
			return
		}
		role := Role(script[0] % 2)
		c := Config{Role: role, SegmentBytes: 8, WindowBytes: 64, MessageBytes: 100, QueueBytes: 150, PlainQueueBytes: 300, LargeBytes: 400, Streams: 4}
		o := newOwnParty(rand.New(rand.NewPCG(1, 1)), c, 2, 1000, 50)
		now := begin
		o.table.attach(now)
		for script = script[1:]; len(script) >= 8; script = script[8:] {
			now = now.Add(time.Duration(script[7]) * 10 * time.Millisecond)
			hostile := hostileFrame(script)
			_ = o.table.handleFrame(now, hostile)
			o.table.fireTimers(now)
			o.talkAll(script[6]&1 == 0)
			for range 50 {
				b := o.next(now)
				if b == nil {
					break
				}
				if _, err := decode(b); err != nil {
					t.Fatalf("sent %x: %v", b, err)
				}
			}
			if err := o.check(); err != nil {
				t.Fatal(err)
			}
			if len(o.table.streams) > 4 || o.count > 4 || len(o.replies.queue) > o.replies.limit {
				t.Fatalf("%d streams, %d counted, %d answers", len(o.table.streams), o.count, len(o.replies.queue))
			}
		}
		if err := o.end(now); err != nil {
			t.Fatal(err)
		}
	})
}

// talkAll sends, and optionally receives, on every stream.
func (o *ownParty) talkAll(receive bool) {
	for _, one := range o.talks {
		o.send(one)
		if receive && one.state.pop().payload != nil {
			o.update(one.state)
		}
		if one.state.flow.ended != nil && len(one.state.receive.queue) == 0 {
			o.reportEnd(one.state)
		}
	}
}

// hostileFrame derives a frame from eight bytes.
func hostileFrame(b []byte) []byte {
	id := string(rune('a' + b[1]%6))
	number := func(b byte) uint32 { return uint32(int8(b)) }
	ack, bits := number(b[2]), uint32(b[3])
	switch b[0] % 8 {
	case 0:
		return appendEmpty(nil, id, ack, bits, bodyAck)
	case 1:
		return appendEmpty(nil, id, ack, bits, bodyHeartbeat)
	case 2:
		return appendResume(nil, id, ack, bits, number(b[4]))
	case 3:
		return appendReset(nil, id, ack, bits, "because")
	case 4:
		return dataFrame(id, 0, 0, number(b[4]), 0, 1, string(make([]byte, 1+int(b[5]))))
	}
	return dataFrame(id, ack, bits, number(b[4]), uint32(b[5]>>4), uint32(b[5]&15), string(make([]byte, 1+int(b[6])%20)))
}
