package relay

import (
	"errors"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	relayv1 "github.com/execwire/execwire/gen/go/codex/exec_server/relay/v1"
	"github.com/execwire/execwire/internal/tracecontext"
)

// version is the only version of the protocol.
const version = 1

// maxStreamID is the maximum length of a stream id in bytes.
const maxStreamID = 128

// Field numbers of RelayMessageFrame. The bodies are members of a oneof.
const (
	fieldVersion protowire.Number = 1
	fieldStream  protowire.Number = 2
	fieldAck     protowire.Number = 3
	fieldAckBits protowire.Number = 4

	fieldTraceParent protowire.Number = 11
	fieldTraceState  protowire.Number = 12
)

// body is the field number of a frame's body in RelayMessageFrame; 0 means none.
type body protowire.Number

const (
	bodyData      body = 5
	bodyAck       body = 6
	bodyResume    body = 7
	bodyReset     body = 8
	bodyHeartbeat body = 9
	bodyHandshake body = 10
)

// Field numbers of the bodies.
const (
	fieldSeq          protowire.Number = 1
	fieldSegmentIndex protowire.Number = 2
	fieldSegmentCount protowire.Number = 3
	fieldPayload      protowire.Number = 4

	fieldNextSeq protowire.Number = 1
	fieldReason  protowire.Number = 1
)

// frame is a decoded RelayMessageFrame.
type frame struct {
	stream string
	ack    uint32
	bits   uint32
	body   body

	// data frames
	seq, index, count uint32
	payload           []byte
	trace             tracecontext.Context

	next   uint32 // resume only
	reason string // reset only
}

// hasAck reports whether the frame shows that its sender acknowledges.
func (f *frame) hasAck() bool { return f.body == bodyAck || f.ack != 0 || f.bits != 0 }

// Reasons for dropping a frame.
var (
	errNotBinary   = errors.New("not a binary message")
	errNotProtobuf = errors.New("not a RelayMessageFrame")
	errNoBody      = errors.New("no known body")
	errVersion     = errors.New("version is not 1")
	errStreamID    = errors.New("stream id is empty, too long or has surrounding white space")
	errPayload     = errors.New("payload is empty")
	errSegment     = errors.New("segment index is not below segment count")
	errReason      = errors.New("reason is empty or too long")
	errHandshake   = errors.New("handshake not supported: this endpoint has no keys")
	errSegmented   = errors.New("segmented message from a peer that does not acknowledge")
)

// decode decodes and validates a frame. The error says why it is dropped.
func decode(b []byte) (frame, error) {
	var message relayv1.RelayMessageFrame
	if err := proto.Unmarshal(b, &message); err != nil {
		return frame{}, errNotProtobuf
	}
	f := frame{stream: message.GetStreamId(), ack: message.GetAck(), bits: message.GetAckBits()}
	switch {
	case message.GetVersion() != version:
		return f, errVersion
	case !validStreamID(f.stream):
		return f, errStreamID
	}
	switch kind := message.GetBody().(type) {
	case *relayv1.RelayMessageFrame_Data:
		f.body = bodyData
		f.seq, f.index, f.count, f.payload = kind.Data.GetSeq(), kind.Data.GetSegmentIndex(), kind.Data.GetSegmentCount(), kind.Data.GetPayload()
		f.trace = tracecontext.Parse(message.GetTraceparent(), message.GetTracestate())
		if len(f.payload) == 0 {
			return f, errPayload
		}
		if f.index >= f.count {
			return f, errSegment
		}
	case *relayv1.RelayMessageFrame_AckFrame:
		f.body = bodyAck
	case *relayv1.RelayMessageFrame_Resume:
		f.body, f.next = bodyResume, kind.Resume.GetNextSeq()
	case *relayv1.RelayMessageFrame_Reset_:
		f.body, f.reason = bodyReset, kind.Reset_.GetReason()
		if len(f.reason) == 0 || len(f.reason) > maxReason {
			return f, errReason
		}
	case *relayv1.RelayMessageFrame_Heartbeat:
		f.body = bodyHeartbeat
	case *relayv1.RelayMessageFrame_Handshake:
		return f, errHandshake
	default:
		return f, errNoBody
	}
	return f, nil
}

// validStreamID reports whether id is allowed as a stream id.
func validStreamID(id string) bool {
	return id != "" && len(id) <= maxStreamID && utf8.ValidString(id) && len(strings.TrimSpace(id)) == len(id)
}

// Header is the part of a frame that a rendezvous needs to route it.
type Header struct {
	Stream string // the stream id
	Reset  bool   // the frame ends its stream, so that its route can be released
}

// ParseHeader returns the header of a frame. It does not validate the rest of the
// frame.
func ParseHeader(frame []byte) (Header, error) {
	var h Header
	for len(frame) > 0 {
		number, kind, tag := protowire.ConsumeTag(frame)
		if tag < 0 || number > protowire.MaxValidNumber {
			return Header{}, errNotProtobuf
		}
		size := protowire.ConsumeFieldValue(number, kind, frame[tag:])
		if size < 0 {
			return Header{}, errNotProtobuf
		}
		switch value := frame[tag : tag+size]; {
		case kind != protowire.BytesType:
		case number == fieldStream:
			id, _ := protowire.ConsumeBytes(value)
			h.Stream = string(id)
		case body(number) >= bodyData && body(number) <= bodyHandshake:
			h.Reset = body(number) == bodyReset // the last body counts
		}
		frame = frame[tag+size:]
	}
	if !validStreamID(h.Stream) {
		return Header{}, streamIDError(h.Stream)
	}
	return h, nil
}
