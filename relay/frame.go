package relay

import (
	"bytes"
	"errors"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/execwire/execwire/internal/buffers"
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

	buffer []byte // the encoded frame, with the payload; nil once the payload is retained
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

// decode decodes and validates a frame, whose payload refers to b. The error says why it
// is dropped.
func decode(b []byte) (frame, error) {
	f := frame{buffer: b}
	var versionSent uint32
	var stream, parent, state []byte
	for len(b) > 0 {
		var in field
		if in, b = nextField(b); b == nil {
			return frame{}, errNotProtobuf
		}
		switch in.number {
		case fieldVersion:
			in.setNumber(&versionSent)
		case fieldStream:
			in.setBytes(&stream)
		case fieldAck:
			in.setNumber(&f.ack)
		case fieldAckBits:
			in.setNumber(&f.bits)
		case fieldTraceParent:
			in.setBytes(&parent)
		case fieldTraceState:
			in.setBytes(&state)
		}
		if in.isBody() && !f.decodeBody(body(in.number), in.bytes) {
			return frame{}, errNotProtobuf
		}
	}
	f.stream = string(stream)
	if !utf8.ValidString(f.stream) || !utf8.ValidString(f.reason) {
		return frame{}, errNotProtobuf
	}
	if f.body == bodyData {
		f.trace = tracecontext.Parse(string(parent), string(state))
	}
	return f, f.validate(versionSent)
}

// compact copies the payload if it is a small part of the buffer: what is retained counts by
// its payload, and a peer may add what is ignored.
func (f *frame) compact() {
	if cap(f.buffer) > 2*(len(f.payload)+messageOverhead) {
		f.payload = bytes.Clone(f.payload)
		buffers.Put(f.buffer)
		f.buffer = nil
	}
}

// decodeBody decodes a body, and reports whether it is well-formed. It replaces a body of
// another kind.
func (f *frame) decodeBody(kind body, b []byte) bool {
	if f.body != kind {
		f.body, f.seq, f.index, f.count, f.payload, f.next, f.reason = kind, 0, 0, 0, nil, 0, ""
	}
	for len(b) > 0 {
		var in field
		if in, b = nextField(b); b == nil {
			return false
		}
		switch {
		case kind == bodyData && in.number == fieldSeq:
			in.setNumber(&f.seq)
		case kind == bodyData && in.number == fieldSegmentIndex:
			in.setNumber(&f.index)
		case kind == bodyData && in.number == fieldSegmentCount:
			in.setNumber(&f.count)
		case kind == bodyData && in.number == fieldPayload:
			in.setBytes(&f.payload)
		case kind == bodyResume && in.number == fieldNextSeq:
			in.setNumber(&f.next)
		case kind == bodyReset && in.number == fieldReason && in.bytes != nil:
			f.reason = string(in.bytes)
		}
	}
	return true
}

// validate returns why the frame, of a version, is dropped.
func (f *frame) validate(versionSent uint32) error {
	switch {
	case versionSent != version:
		return errVersion
	case !validStreamID(f.stream):
		return errStreamID
	case f.body == 0:
		return errNoBody
	case f.body == bodyHandshake:
		return errHandshake
	case f.body == bodyData && len(f.payload) == 0:
		return errPayload
	case f.body == bodyData && f.index >= f.count:
		return errSegment
	case f.body == bodyReset && (len(f.reason) == 0 || len(f.reason) > maxReason):
		return errReason
	}
	return nil
}

// field is a field of an encoded message.
type field struct {
	number protowire.Number
	varint bool
	value  uint64 // of a varint
	bytes  []byte // of a string, of bytes or of a message; not nil then
}

// nextField returns the first field of b and what follows it, which is nil if b is
// malformed.
func nextField(b []byte) (f field, rest []byte) {
	number, kind, n := protowire.ConsumeTag(b)
	if n < 0 || number > protowire.MaxValidNumber {
		return field{}, nil
	}
	f.number, b = number, b[n:]
	switch kind {
	case protowire.VarintType:
		f.varint = true
		f.value, n = protowire.ConsumeVarint(b)
	case protowire.BytesType:
		f.bytes, n = protowire.ConsumeBytes(b)
	default:
		n = protowire.ConsumeFieldValue(number, kind, b)
	}
	if n < 0 {
		return field{}, nil
	}
	return f, b[n:]
}

// setNumber sets a number if the field is one.
func (f *field) setNumber(to *uint32) {
	if f.varint {
		*to = uint32(f.value)
	}
}

// setBytes sets bytes if the field has some.
func (f *field) setBytes(to *[]byte) {
	if f.bytes != nil {
		*to = f.bytes
	}
}

// isBody reports whether the field is a body.
func (f *field) isBody() bool {
	return f.bytes != nil && body(f.number) >= bodyData && body(f.number) <= bodyHandshake
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
		var in field
		if in, frame = nextField(frame); frame == nil {
			return Header{}, errNotProtobuf
		}
		switch {
		case in.number == fieldStream && in.bytes != nil:
			h.Stream = string(in.bytes)
		case in.isBody():
			h.Reset = body(in.number) == bodyReset // the last body counts
		}
	}
	if !validStreamID(h.Stream) {
		return Header{}, streamIDError(h.Stream)
	}
	return h, nil
}
