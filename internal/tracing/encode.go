package tracing

import (
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// Numbers of fields of opentelemetry.proto.trace.v1.Span and its status, which are stable.
const (
	spanTrace, spanID, spanState, spanParent protowire.Number = 1, 2, 3, 4

	spanName, spanKind, spanBegan, spanEnded, spanAttributes, spanEvents protowire.Number = 5, 6, 7, 8, 9, 11

	spanStatus, statusCode protowire.Number = 15, 3
)

// statusError is the status of a span that failed.
const statusError = 2

// encode encodes the span as a field of opentelemetry.proto.trace.v1.ScopeSpans.
func (s *Span) encode(at time.Time, failed bool) []byte {
	b := appendBytes(nil, spanTrace, s.trace[:])
	b = appendBytes(b, spanID, s.id[:])
	if s.state != "" {
		b = appendBytes(b, spanState, []byte(s.state))
	}
	if s.parent != [8]byte{} {
		b = appendBytes(b, spanParent, s.parent[:])
	}
	b = appendBytes(b, spanName, []byte(s.name))
	b = appendVarint(b, spanKind, uint64(s.kind))
	b = appendTime(b, spanBegan, s.began)
	b = appendTime(b, spanEnded, at)
	b = append(append(b, s.attributes...), s.events...)
	if failed {
		b = appendBytes(b, spanStatus, appendVarint(nil, statusCode, statusError))
	}
	return appendBytes(nil, 2, b)
}

// appendEvent appends an event of a span.
func appendEvent(b []byte, name string, at time.Time) []byte {
	return appendBytes(b, spanEvents, appendBytes(appendTime(nil, 1, at), 2, []byte(name)))
}

// appendAttribute appends an opentelemetry.proto.common.v1.KeyValue as a field.
func appendAttribute(b []byte, field protowire.Number, key string, value []byte) []byte {
	return appendBytes(b, field, appendBytes(appendBytes(nil, 1, []byte(key)), 2, value))
}

// stringValue encodes an opentelemetry.proto.common.v1.AnyValue.
func stringValue(value string) []byte { return appendBytes(nil, 1, []byte(value)) }

// intValue encodes one, too.
func intValue(value int64) []byte { return appendVarint(nil, 3, uint64(value)) }

// encodeResource encodes the resource of all spans, as a field of
// opentelemetry.proto.trace.v1.ResourceSpans.
func encodeResource(attributes [][2]string) []byte {
	var b []byte
	for _, a := range attributes {
		b = appendAttribute(b, 1, a[0], stringValue(a[1]))
	}
	return appendBytes(nil, 1, b)
}

// encodeRequest encodes an opentelemetry.proto.collector.trace.v1.ExportTraceServiceRequest.
func encodeRequest(resource []byte, spans [][]byte) []byte {
	scope := appendBytes(nil, 1, appendBytes(nil, 1, []byte("github.com/execwire/execwire")))
	for _, span := range spans {
		scope = append(scope, span...)
	}
	return appendBytes(nil, 1, appendBytes(resource[:len(resource):len(resource)], 2, scope))
}

// rejectedSpans returns how many spans a response says were refused: the field
// partial_success.rejected_spans of ExportTraceServiceResponse.
func rejectedSpans(response []byte) (rejected uint64) {
	eachField(response, func(field protowire.Number, _ uint64, success []byte) {
		if field != 1 {
			return
		}
		eachField(success, func(field protowire.Number, value uint64, _ []byte) {
			if field == 1 {
				rejected = value
			}
		})
	})
	return rejected
}

// eachField calls do with each field that is a varint or has bytes, up to the first that
// is malformed.
func eachField(message []byte, do func(field protowire.Number, value uint64, content []byte)) {
	for len(message) > 0 {
		field, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return
		}
		size := protowire.ConsumeFieldValue(field, kind, message[n:])
		if size < 0 {
			return
		}
		switch kind {
		case protowire.VarintType:
			value, _ := protowire.ConsumeVarint(message[n:])
			do(field, value, nil)
		case protowire.BytesType:
			content, _ := protowire.ConsumeBytes(message[n:])
			do(field, 0, content)
		}
		message = message[n+size:]
	}
}

func appendBytes(b []byte, field protowire.Number, content []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), content)
}

func appendVarint(b []byte, field protowire.Number, value uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), value)
}

func appendTime(b []byte, field protowire.Number, at time.Time) []byte {
	return protowire.AppendFixed64(protowire.AppendTag(b, field, protowire.Fixed64Type), uint64(at.UnixNano()))
}
