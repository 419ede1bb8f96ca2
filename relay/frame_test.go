package relay

import (
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	relayv1 "github.com/execwire/execwire/gen/go/codex/exec_server/relay/v1"
	"github.com/execwire/execwire/internal/tracecontext"
)

// golden has frames of every kind, with the bytes that existing peers use.
var golden = []struct {
	name  string
	bytes string
	ours  []byte
	frame *relayv1.RelayMessageFrame
}{
	{"data", "080112017318ffffffff0f2a0718012203616263",
		dataFrame("s", noSegment, 0, 0, 0, 1, "abc"),
		&relayv1.RelayMessageFrame{Version: 1, StreamId: "s", Ack: noSegment, Body: &relayv1.RelayMessageFrame_Data{
			Data: &relayv1.RelayData{SegmentCount: 1, Payload: []byte("abc")}}}},
	{"segment", "0801120173180720052a0c08ac0210021803220378797a",
		dataFrame("s", 7, 5, 300, 2, 3, "xyz"),
		&relayv1.RelayMessageFrame{Version: 1, StreamId: "s", Ack: 7, AckBits: 5, Body: &relayv1.RelayMessageFrame_Data{
			Data: &relayv1.RelayData{Seq: 300, SegmentIndex: 2, SegmentCount: 3, Payload: []byte("xyz")}}}},
	{"data of a trace", "08011201732a07180122036162635a37" + hex.EncodeToString([]byte(someTrace.Parent())) + "6203613d31",
		firstFrame("s", "abc"),
		&relayv1.RelayMessageFrame{Version: 1, StreamId: "s", Traceparent: proto.String(someTrace.Parent()), Tracestate: proto.String("a=1"),
			Body: &relayv1.RelayMessageFrame_Data{Data: &relayv1.RelayData{SegmentCount: 1, Payload: []byte("abc")}}}},
	{"acknowledgement", "080112017318ffffffff0f3200",
		appendEmpty(nil, "s", noSegment, 0, bodyAck),
		&relayv1.RelayMessageFrame{Version: 1, StreamId: "s", Ack: noSegment, Body: &relayv1.RelayMessageFrame_AckFrame{AckFrame: &relayv1.RelayAck{}}}},
	{"resume", "080112017318ffffffff0f3a00",
		appendResume(nil, "s", noSegment, 0, 0),
		&relayv1.RelayMessageFrame{Version: 1, StreamId: "s", Ack: noSegment, Body: &relayv1.RelayMessageFrame_Resume{Resume: &relayv1.RelayResume{}}}},
	{"resume in the middle", "080112017318093a0308ac02",
		appendResume(nil, "s", 9, 0, 300),
		&relayv1.RelayMessageFrame{Version: 1, StreamId: "s", Ack: 9, Body: &relayv1.RelayMessageFrame_Resume{Resume: &relayv1.RelayResume{NextSeq: 300}}}},
	{"reset", "0801120173180142080a06636c6f736564",
		appendReset(nil, "s", 1, 0, ReasonClosed),
		&relayv1.RelayMessageFrame{Version: 1, StreamId: "s", Ack: 1, Body: &relayv1.RelayMessageFrame_Reset_{Reset_: &relayv1.RelayReset{Reason: ReasonClosed}}}},
	{"heartbeat", "080112017318022080808080084a00",
		appendEmpty(nil, "s", 2, 1<<31, bodyHeartbeat),
		&relayv1.RelayMessageFrame{Version: 1, StreamId: "s", Ack: 2, AckBits: 1 << 31, Body: &relayv1.RelayMessageFrame_Heartbeat{Heartbeat: &relayv1.RelayHeartbeat{}}}},
}

var someTrace = tracecontext.Parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "a=1")

// firstFrame returns the first frame of a message of someTrace.
func firstFrame(id, message string) (frame []byte) {
	for seg := range splitMessage(id, []byte(message), len(message), someTrace) {
		frame = seg.prependHeader(id, 0, 0, 0)
	}
	return frame
}

func dataFrame(id string, ack, bits, seq, index, count uint32, payload string) []byte {
	part := newSegment(id, []byte(payload), int(index), int(count))
	return part.prependHeader(id, ack, bits, seq)
}

// Encoded frames match the schema and the golden bytes.
func TestGoldenFrames(t *testing.T) {
	for _, g := range golden {
		decoded := &relayv1.RelayMessageFrame{}
		if err := proto.Unmarshal(g.ours, decoded); err != nil {
			t.Fatal(err)
		}
		if hex.EncodeToString(g.ours) != g.bytes || !proto.Equal(decoded, g.frame) {
			t.Errorf("%s:\nours %x\nwant %s\n%v", g.name, g.ours, g.bytes, decoded)
		}
		if h, err := ParseHeader(g.ours); string(h.Stream) != "s" || err != nil {
			t.Errorf("%s is of stream %q, %v", g.name, h.Stream, err)
		}
	}
}

// The largest header fits.
func TestFrame_LargestHeader(t *testing.T) {
	id := strings.Repeat("i", maxStreamID)
	b := dataFrame(id, noSegment, noSegment, noSegment, 1<<32-2, 1<<32-1, strings.Repeat("x", 1<<20))
	f, err := decode(b)
	if err != nil || f.stream != id || f.seq != noSegment || f.count != 1<<32-1 || len(f.payload) != 1<<20 {
		t.Errorf("it came back with error %v, stream %.10q, seq %d, count %d, %d bytes", err, f.stream, f.seq, f.count, len(f.payload))
	}
}

// Each reason for dropping a frame is covered.
func TestDecode_DropsInvalidFrames(t *testing.T) {
	marshal := func(f *relayv1.RelayMessageFrame) []byte {
		b, err := proto.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	data := func(change func(*relayv1.RelayMessageFrame, *relayv1.RelayData)) []byte {
		d := &relayv1.RelayData{SegmentCount: 1, Payload: []byte("x")}
		f := &relayv1.RelayMessageFrame{Version: 1, StreamId: "s", Body: &relayv1.RelayMessageFrame_Data{Data: d}}
		change(f, d)
		return marshal(f)
	}
	for _, c := range []struct {
		name string
		b    []byte
		why  error
	}{
		{"version 0", data(func(f *relayv1.RelayMessageFrame, _ *relayv1.RelayData) { f.Version = 0 }), errVersion},
		{"version 2", data(func(f *relayv1.RelayMessageFrame, _ *relayv1.RelayData) { f.Version = 2 }), errVersion},
		{"no stream id", data(func(f *relayv1.RelayMessageFrame, _ *relayv1.RelayData) { f.StreamId = "" }), errStreamID},
		{"white space", data(func(f *relayv1.RelayMessageFrame, _ *relayv1.RelayData) { f.StreamId = " s" }), errStreamID},
		{"long stream id", data(func(f *relayv1.RelayMessageFrame, _ *relayv1.RelayData) { f.StreamId = strings.Repeat("s", 129) }), errStreamID},
		{"no body", marshal(&relayv1.RelayMessageFrame{Version: 1, StreamId: "s"}), errNoBody},
		{"empty payload", data(func(_ *relayv1.RelayMessageFrame, d *relayv1.RelayData) { d.Payload = nil }), errPayload},
		{"no segments", data(func(_ *relayv1.RelayMessageFrame, d *relayv1.RelayData) { d.SegmentCount = 0 }), errSegment},
		{"index too high", data(func(_ *relayv1.RelayMessageFrame, d *relayv1.RelayData) { d.SegmentIndex = 1 }), errSegment},
		{"empty reason", appendReset(nil, "s", 0, 0, ""), errReason},
		{"long reason", appendReset(nil, "s", 0, 0, strings.Repeat("r", 257)), errReason},
		{"handshake", marshal(&relayv1.RelayMessageFrame{Version: 1, StreamId: "s", Body: &relayv1.RelayMessageFrame_Handshake{
			Handshake: &relayv1.RelayHandshake{Payload: []byte("x")}}}), errHandshake},
		{"nothing", nil, errVersion},
		{"JSON", []byte(`{"id":1}`), errNotProtobuf},
		{"cut off", dataFrame("s", 1, 1, 1, 0, 1, "xyz")[:15], errNotProtobuf},
		{"stream id that is not UTF-8", appendEmpty(nil, "\xff", 0, 0, bodyAck), errNotProtobuf},
	} {
		if _, err := decode(c.b); !errors.Is(err, c.why) {
			t.Errorf("%s: %v, want %v", c.name, err, c.why)
		}
	}
}

// ParseHeader accepts frames that are invalid in other ways.
func TestParseHeader_IgnoresOtherFields(t *testing.T) {
	b := appendEmpty(nil, "stream", 0, 0, bodyHandshake)
	for _, frame := range [][]byte{append([]byte{8, 2}, b...), append(b, b[2:]...), append(b, 0x2a, 3, 0xff, 0xff, 0xff)} {
		if h, err := ParseHeader(frame); string(h.Stream) != "stream" || err != nil {
			t.Errorf("%x is of stream %q, %v", frame, h.Stream, err)
		}
	}
	reset := appendReset(nil, "s", 0, 0, "why")
	for _, frame := range [][]byte{
		nil, {8, 1}, appendEmpty(nil, "", 0, 0, bodyAck), appendEmpty(nil, "\n", 0, 0, bodyAck), []byte("x"),
		reset[:len(reset)-1],
	} {
		if h, err := ParseHeader(frame); err == nil {
			t.Errorf("%x is of stream %q", frame, h.Stream)
		}
	}
}

func TestParseHeader_Reset(t *testing.T) {
	reset, ack := appendReset(nil, "s", 0, 0, "why"), appendEmpty(nil, "s", 0, 0, bodyAck)
	for _, c := range []struct {
		frame []byte
		reset bool
	}{
		{reset, true}, {appendReset(nil, "s", 7, 9, ""), true}, {append(slices.Clone(ack), reset...), true},
		{ack, false}, {dataFrame("s", 1, 1, 1, 0, 1, string(reset)), false}, {append(slices.Clone(reset), ack...), false},
		{[]byte{8, 1, 18, 1, 's', 0x40, 1}, false},
	} {
		if h, err := ParseHeader(c.frame); h.Reset != c.reset || err != nil {
			t.Errorf("%x is a reset: %v, %v", c.frame, h.Reset, err)
		}
	}
}
