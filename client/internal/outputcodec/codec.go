// Package outputcodec decodes the output of a process without copying it.
package outputcodec

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// minMessage is the size from which messages are decoded without a copy. Smaller ones cost more
// for their parts than for their bytes.
const minMessage = 8 << 10

// Codec is the codec of one RunProcess stream. It encodes and decodes as gRPC does, except that the
// output of the first event of a large message is in memory that is used again: its Data is valid
// until the next message is decoded. Only one goroutine may receive from the stream.
type Codec struct {
	encoding.CodecV2
	borrowed mem.Buffer // has the output of the last message
}

// New returns the codec of a new stream.
func New() *Codec { return &Codec{CodecV2: encoding.GetCodecV2(proto.Name)} }

// dataPath are the numbers of the fields that lead to the output of a message.
var dataPath = []protowire.Number{
	2, // RunProcessResponse.events
	1, // RunEvents.events
	2, // ProcessEvent.output
	3, // ProcessOutput.data
}

// Unmarshal implements encoding.CodecV2.
func (c *Codec) Unmarshal(data mem.BufferSlice, v any) error {
	if c.borrowed != nil {
		c.borrowed.Free()
		c.borrowed = nil
	}
	response, ok := v.(*execwirev1.RunProcessResponse)
	if !ok || data.Len() < minMessage {
		return c.CodecV2.Unmarshal(data, v)
	}
	message := data.MaterializeToBuffer(mem.DefaultBufferPool())
	rest, output, ok := cut(message.ReadOnlyData(), dataPath)
	if !ok {
		defer message.Free()
		return c.CodecV2.Unmarshal(mem.BufferSlice{message}, v)
	}
	c.borrowed = message
	if err := c.CodecV2.Unmarshal(mem.BufferSlice{mem.SliceBuffer(rest)}, v); err != nil {
		return err
	}
	// A later field may have taken the place of this one.
	if events := response.GetEvents().GetEvents(); len(events) > 0 {
		if first := events[0].GetOutput(); first != nil && first.Data == nil {
			first.Data = output
		}
	}
	return nil
}

// cut returns the first value at a path of fields, and a message without it. It returns false if
// there is none.
func cut(message []byte, path []protowire.Number) (rest, value []byte, ok bool) {
	for at := 0; at < len(message); {
		number, kind, tag := protowire.ConsumeTag(message[at:])
		if tag < 0 {
			return nil, nil, false
		}
		size := protowire.ConsumeFieldValue(number, kind, message[at+tag:])
		if size < 0 {
			return nil, nil, false
		}
		end := at + tag + size
		if number != path[0] || kind != protowire.BytesType {
			at = end
			continue
		}
		value, _ = protowire.ConsumeBytes(message[at+tag : end])
		rest = append(rest, message[:at]...)
		if len(path) > 1 {
			var inner []byte
			if inner, value, ok = cut(value, path[1:]); !ok {
				return nil, nil, false
			}
			rest = protowire.AppendBytes(protowire.AppendTag(rest, number, kind), inner)
		}
		return append(rest, message[end:]...), value, true
	}
	return nil, nil, false
}
