package relay

import (
	"bytes"
	"errors"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// version is the only version of the protocol there is.
const version = 1

// maxStreamID is how long a stream id may be, in bytes.
const maxStreamID = 128

// Numbers of the fields of RelayMessageFrame. The bodies are members of a oneof.
const (
	fieldVersion     protowire.Number = 1
	fieldStream      protowire.Number = 2
	fieldAck         protowire.Number = 3
	fieldAckBits     protowire.Number = 4
	fieldTraceparent protowire.Number = 11
	fieldTracestate  protowire.Number = 12
)

// body is the number of a frame's body among the fields of RelayMessageFrame; 0
// is none.
type body protowire.Number

const (
	bodyData      body = 5
	bodyAck       body = 6
	bodyResume    body = 7
	bodyReset     body = 8
	bodyHeartbeat body = 9
	bodyHandshake body = 10
)

// Numbers of the fields of bodies.
const (
	fieldSeq          protowire.Number = 1
	fieldSegmentIndex protowire.Number = 2
	fieldSegmentCount protowire.Number = 3
	fieldPayload      protowire.Number = 4

	fieldNextSeq   protowire.Number = 1
	fieldReason    protowire.Number = 1
	fieldHandshake protowire.Number = 1
)

// frame is a RelayMessageFrame. Its slices are parts of the bytes that it was
// read from.
type frame struct {
	version uint32
	stream  []byte
	ack     uint32
	bits    uint32
	body    body

	// Of a data frame; payload of a handshake too.
	seq, index, count uint32
	payload           []byte

	next   uint32 // of a resume
	reason []byte // of a reset
}

// shows reports whether the frame shows that its sender acknowledges.
func (f *frame) shows() bool { return f.body == bodyAck || f.ack != 0 || f.bits != 0 }

// Why frames are dropped.
var (
	errNotBinary   = errors.New("the message is text")
	errNotProtobuf = errors.New("it is no RelayMessageFrame")
	errNoBody      = errors.New("it has no body that is known")
	errVersion     = errors.New("its version is not 1")
	errStreamID    = errors.New("its stream id is empty, too long or has white space around it")
	errPayload     = errors.New("its payload is empty")
	errSegment     = errors.New("its segment index is not below its segment count")
	errReason      = errors.New("its reason is empty or too long")
	errHandshake   = errors.New("it is a handshake, and this end has no keys")
	errSegmented   = errors.New("it is one of several segments of a peer that does not acknowledge")
)

// decode reads a frame, and returns why it has to be dropped if it does.
func decode(b []byte) (frame, error) {
	f, err := parse(b)
	if err != nil {
		return f, err
	}
	switch {
	case f.version != version:
		return f, errVersion
	case !validStreamID(f.stream):
		return f, errStreamID
	case f.body == 0:
		return f, errNoBody
	case f.body == bodyData && len(f.payload) == 0:
		return f, errPayload
	case f.body == bodyData && f.index >= f.count:
		return f, errSegment
	case f.body == bodyReset && (len(f.reason) == 0 || len(f.reason) > maxReason):
		return f, errReason
	case f.body == bodyHandshake:
		return f, errHandshake
	}
	return f, nil
}

// parse reads the fields of a frame as any reader of protobuf does: the last one
// of a number counts, those that are not known are skipped.
func parse(b []byte) (frame, error) {
	var f frame
	err := fields(b, func(number protowire.Number, value field) error {
		switch number {
		case fieldVersion:
			value.number(&f.version)
		case fieldStream:
			return value.text(&f.stream)
		case fieldAck:
			value.number(&f.ack)
		case fieldAckBits:
			value.number(&f.bits)
		case fieldTraceparent, fieldTracestate:
			var unused []byte
			return value.text(&unused)
		default:
			if value.kind == protowire.BytesType && number >= protowire.Number(bodyData) && number <= protowire.Number(bodyHandshake) {
				return f.parseBody(body(number), value.bytes)
			}
		}
		return nil
	})
	return f, err
}

// parseBody reads a body. A second body of the same kind adds to the first, of
// another kind replaces it.
func (f *frame) parseBody(kind body, b []byte) error {
	if f.body != kind {
		f.body = kind
		f.seq, f.index, f.count, f.payload, f.next, f.reason = 0, 0, 0, nil, 0, nil
	}
	return fields(b, func(number protowire.Number, value field) error {
		switch kind {
		case bodyData:
			switch number {
			case fieldSeq:
				value.number(&f.seq)
			case fieldSegmentIndex:
				value.number(&f.index)
			case fieldSegmentCount:
				value.number(&f.count)
			case fieldPayload:
				value.blob(&f.payload)
			}
		case bodyResume:
			if number == fieldNextSeq {
				value.number(&f.next)
			}
		case bodyReset:
			if number == fieldReason {
				return value.text(&f.reason)
			}
		case bodyHandshake:
			if number == fieldHandshake {
				value.blob(&f.payload)
			}
		}
		return nil
	})
}

// field is the value of a field as it is on the wire.
type field struct {
	kind   protowire.Type
	varint uint64
	bytes  []byte
}

// number sets to to the value if it is a number.
func (v field) number(to *uint32) {
	if v.kind == protowire.VarintType {
		*to = uint32(v.varint)
	}
}

// blob sets to to the value if it is bytes.
func (v field) blob(to *[]byte) {
	if v.kind == protowire.BytesType {
		*to = v.bytes
	}
}

// text sets to to the value if it is bytes, which must be UTF-8.
func (v field) text(to *[]byte) error {
	v.blob(to)
	if v.kind == protowire.BytesType && !utf8.Valid(v.bytes) {
		return errNotProtobuf
	}
	return nil
}

// fields calls do for each field of a message in b.
func fields(b []byte, do func(protowire.Number, field) error) error {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 || number > protowire.MaxValidNumber {
			return errNotProtobuf
		}
		b = b[n:]
		value := field{kind: kind}
		switch kind {
		case protowire.VarintType:
			value.varint, n = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			value.bytes, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(number, kind, b)
		}
		if n < 0 {
			return errNotProtobuf
		}
		b = b[n:]
		if err := do(number, value); err != nil {
			return err
		}
	}
	return nil
}

// validStreamID reports whether a frame may have the stream id.
func validStreamID(id []byte) bool {
	return len(id) > 0 && len(id) <= maxStreamID && utf8.Valid(id) && len(bytes.TrimSpace(id)) == len(id)
}

// StreamID returns the stream that a frame belongs to, for whoever passes it on.
// Nothing else of the frame is read, so that it may be wrong in every other way.
// The error is a [*StreamIDError] if the id is one that no frame may have.
func StreamID(b []byte) (string, error) {
	var id []byte
	err := fields(b, func(number protowire.Number, value field) error {
		if number == fieldStream {
			value.blob(&id)
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	if !validStreamID(id) {
		return "", &StreamIDError{ID: string(id)}
	}
	return string(id), nil
}

// IsReset reports whether a frame that has a stream id ends its stream, for
// whoever passes it on and need not keep a place for that any longer.
func IsReset(b []byte) bool {
	var last body // of several the last one counts
	err := fields(b, func(number protowire.Number, value field) error {
		if one := body(number); value.kind == protowire.BytesType && one >= bodyData && one <= bodyHandshake {
			last = one
		}
		return nil
	})
	return err == nil && last == bodyReset
}
