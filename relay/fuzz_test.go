package relay

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	relayv1 "github.com/execwire/execwire/gen/go/codex/exec_server/relay/v1"
)

// FuzzFrame: frames are read as the schema says, and whatever is read can be
// passed on by its stream.
func FuzzFrame(f *testing.F) {
	for _, g := range golden {
		f.Add(g.ours)
		f.Add(append(g.ours, g.ours...))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		ours, err := parse(b)
		var schema relayv1.RelayMessageFrame
		if failed := proto.Unmarshal(b, &schema); (failed == nil) != (err == nil) {
			t.Fatalf("ours: %v, schema: %v", err, failed)
		}
		if err != nil {
			return
		}
		if ours.version != schema.GetVersion() || string(ours.stream) != schema.GetStreamId() ||
			ours.ack != schema.GetAck() || ours.bits != schema.GetAckBits() {
			t.Fatalf("ours: %+v, schema: %v", ours, &schema)
		}
		same := false
		switch kind := schema.GetBody().(type) {
		case nil:
			same = ours.body == 0
		case *relayv1.RelayMessageFrame_Data:
			d := kind.Data
			same = ours.body == bodyData && ours.seq == d.GetSeq() && ours.index == d.GetSegmentIndex() &&
				ours.count == d.GetSegmentCount() && bytes.Equal(ours.payload, d.GetPayload())
		case *relayv1.RelayMessageFrame_AckFrame:
			same = ours.body == bodyAck
		case *relayv1.RelayMessageFrame_Resume:
			same = ours.body == bodyResume && ours.next == kind.Resume.GetNextSeq()
		case *relayv1.RelayMessageFrame_Reset_:
			same = ours.body == bodyReset && string(ours.reason) == kind.Reset_.GetReason()
		case *relayv1.RelayMessageFrame_Heartbeat:
			same = ours.body == bodyHeartbeat
		case *relayv1.RelayMessageFrame_Handshake:
			same = ours.body == bodyHandshake && bytes.Equal(ours.payload, kind.Handshake.GetPayload())
		}
		if !same {
			t.Fatalf("ours: %+v, schema: %v", ours, &schema)
		}
		id, err := StreamID(b)
		if validStreamID(ours.stream) != (err == nil) || err == nil && id != schema.GetStreamId() {
			t.Fatalf("it is of stream %q, but passed on as %q, %v", schema.GetStreamId(), id, err)
		}
	})
}

// FuzzReassembly: whatever segments come in whatever order, what is held keeps to
// its bounds, and messages are what the segments say.
func FuzzReassembly(f *testing.F) {
	f.Add([]byte{0, 0, 1, 3, 1, 0, 2, 9, 2, 1, 2, 9, 255, 0, 0, 0})
	f.Add([]byte{2, 2, 3, 4, 1, 1, 3, 4, 0, 0, 3, 4, 0, 0, 3, 4, 255, 1, 1, 1})
	f.Fuzz(func(t *testing.T, script []byte) {
		c, err := Config{SegmentBytes: 8, WindowBytes: 64, MessageBytes: 100, QueueBytes: 150, LargeBytes: 50}.withDefaults()
		if err != nil {
			t.Fatal(err)
		}
		p := pool{limit: c.LargeBytes}
		r := receiver{next: none - 2}
		for ; len(script) >= 4; script = script[4:] {
			if script[0] == 255 {
				if len(r.queue) > 0 {
					if _, _, reason := r.pop(true, &c, &p); reason != "" {
						return
					}
				}
				continue
			}
			before := r.next
			in := frame{seq: none - 2 + uint32(script[0]), index: uint32(script[1]), count: uint32(script[2]), payload: make([]byte, 1+int(script[3]))}
			result, reason := r.accept(&in, &c, &p)
			if reason != "" {
				return
			}
			if (result == taken) != (r.next != before) {
				t.Fatalf("the verdict is %d, and the next number went from %d to %d", result, before, r.next)
			}
			if r.bytes > c.WindowBytes || len(r.partial) > c.MessageBytes || p.used > p.limit || p.used != r.large ||
				r.queued > c.QueueBytes+c.MessageBytes+messageOverhead {
				t.Fatalf("beyond its bounds: %d held, %d put together, %d of the pool, %d queued", r.bytes, len(r.partial), p.used, r.queued)
			}
		}
		r.clear(true, &p)
		if p.used != 0 {
			t.Fatalf("%d bytes of the pool are not given back", p.used)
		}
	})
}

// FuzzHostilePeer: whatever frames a peer sends, neither end fails, memory keeps
// to its bounds, and what is said in return does not exceed what was asked and is
// well-formed.
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
		o := newOurs(rand.New(rand.NewPCG(1, 1)), c, 2, 1000, 50)
		now := begin
		o.table.attach(now)
		for script = script[1:]; len(script) >= 8; script = script[8:] {
			now = now.Add(time.Duration(script[7]) * 10 * time.Millisecond)
			hostile := hostileFrame(script)
			_ = o.table.hear(now, hostile)
			o.table.strike(now)
			o.talk(script[6]&1 == 0)
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
			if len(o.lines) > 4 || o.count > 4 || len(o.answers.queue) > o.answers.limit {
				t.Fatalf("%d streams, %d counted, %d answers", len(o.lines), o.count, len(o.answers.queue))
			}
		}
		if err := o.leave(now); err != nil {
			t.Fatal(err)
		}
	})
}

// talk has the application send, and receive if told so, whatever it is.
func (o *ours) talk(receive bool) {
	for _, one := range o.talks {
		o.speak(one)
		if receive && one.line.pop() != nil {
			o.arrange(one.line)
		}
		if one.line.flow.ended != nil && len(one.line.receive.queue) == 0 {
			o.tell(one.line)
		}
	}
}

// hostileFrame makes a frame of eight bytes.
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
