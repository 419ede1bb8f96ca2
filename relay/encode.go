package relay

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/execwire/execwire/internal/tracecontext"
)

// headerFixed is the maximum size of a data frame's header, without the stream
// id.
const (
	maxVarint   = 5                             // of 32 bits
	headerFixed = 2 + 1 + 2 + 2*(1+maxVarint) + // version, tag and length of the id, ack, ack_bits
		1 + maxVarint + 3*(1+maxVarint) + 1 + maxVarint // data: numbers, tag and length of the payload
)

// appendNumber appends a varint field, unless it is 0, which is the default.
func appendNumber(b []byte, field protowire.Number, value uint32) []byte {
	if value == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), uint64(value))
}

// sizeNumber returns the size of what appendNumber appends.
func sizeNumber(field protowire.Number, value uint32) int {
	if value == 0 {
		return 0
	}
	return protowire.SizeTag(field) + protowire.SizeVarint(uint64(value))
}

// appendEnvelope appends the fields that every frame has.
func appendEnvelope(b []byte, stream string, ack, bits uint32) []byte {
	b = appendNumber(b, fieldVersion, version)
	b = protowire.AppendString(protowire.AppendTag(b, fieldStream, protowire.BytesType), stream)
	b = appendNumber(b, fieldAck, ack)
	return appendNumber(b, fieldAckBits, bits)
}

// appendBody appends the tag and length of a body.
func appendBody(b []byte, kind body, length int) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, protowire.Number(kind), protowire.BytesType), uint64(length))
}

// appendEmpty appends a frame with an empty body: an acknowledgement or a
// heartbeat.
func appendEmpty(b []byte, stream string, ack, bits uint32, kind body) []byte {
	return appendBody(appendEnvelope(b, stream, ack, bits), kind, 0)
}

// appendResume appends a resume.
func appendResume(b []byte, stream string, ack, bits, next uint32) []byte {
	b = appendBody(appendEnvelope(b, stream, ack, bits), bodyResume, sizeNumber(fieldNextSeq, next))
	return appendNumber(b, fieldNextSeq, next)
}

// appendReset appends a reset.
func appendReset(b []byte, stream string, ack, bits uint32, reason string) []byte {
	b = appendBody(appendEnvelope(b, stream, ack, bits), bodyReset, protowire.SizeTag(fieldReason)+protowire.SizeBytes(len(reason)))
	return protowire.AppendString(protowire.AppendTag(b, fieldReason, protowire.BytesType), reason)
}

// ResetFrame returns a reset by an end that does not acknowledge.
func ResetFrame(stream, reason string) []byte { return appendReset(nil, stream, 0, 0, reason) }

// appendData appends a data frame up to its payload, which has size bytes.
func appendData(b []byte, stream string, ack, bits, seq, index, count uint32, size int) []byte {
	b = appendBody(appendEnvelope(b, stream, ack, bits), bodyData,
		sizeNumber(fieldSeq, seq)+sizeNumber(fieldSegmentIndex, index)+sizeNumber(fieldSegmentCount, count)+
			protowire.SizeTag(fieldPayload)+protowire.SizeBytes(size))
	b = appendNumber(b, fieldSeq, seq)
	b = appendNumber(b, fieldSegmentIndex, index)
	b = appendNumber(b, fieldSegmentCount, count)
	return protowire.AppendVarint(protowire.AppendTag(b, fieldPayload, protowire.BytesType), uint64(size))
}

// appendTrace appends the fields of a trace context, which follow the body.
func appendTrace(b []byte, trace tracecontext.Context) []byte {
	if trace.IsZero() {
		return b
	}
	b = protowire.AppendString(protowire.AppendTag(b, fieldTraceParent, protowire.BytesType), trace.Parent())
	if state := trace.State(); state != "" {
		b = protowire.AppendString(protowire.AppendTag(b, fieldTraceState, protowire.BytesType), state)
	}
	return b
}
