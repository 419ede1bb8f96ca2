package fileworker

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"

	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// A frame on a connection for unary calls is the length of its content, in four bytes in little-endian order, and its content:
//   - of a request, how many strings follow, as a varint; the strings, each with its length: the method, and name and value of
//     each entry of the metadata; and the message
//   - of a response, one byte: 0 before the message, 1 before a google.rpc.Status instead
const frameHeader = 4

const (
	succeeded = 0
	failed    = 1
)

var (
	errTooLarge  = errors.New("the message is too large")
	errMalformed = errors.New("the message is malformed")
)

// readFrame returns the content of the next frame, unless it is longer than limit.
func readFrame(from *bufio.Reader, limit int) ([]byte, error) {
	var header [frameHeader]byte
	if _, err := io.ReadFull(from, header[:]); err != nil {
		return nil, err
	}
	size := binary.LittleEndian.Uint32(header[:])
	if uint64(size) > uint64(limit) {
		return nil, errTooLarge
	}
	content := make([]byte, size)
	_, err := io.ReadFull(from, content)
	return content, err
}

// newFrame returns the beginning of a frame with a message and so many bytes more.
func newFrame(message proto.Message, more int) []byte {
	return make([]byte, frameHeader, frameHeader+more+proto.Size(message))
}

// finishFrame appends a message and sets the length.
func finishFrame(frame []byte, message proto.Message) ([]byte, error) {
	frame, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(frame, message)
	if err != nil {
		return nil, err
	}
	binary.LittleEndian.PutUint32(frame, uint32(len(frame)-frameHeader))
	return frame, nil
}

// encodeRequest returns the frame of a request, with the outgoing metadata of ctx.
func encodeRequest(ctx context.Context, method string, message proto.Message) ([]byte, error) {
	fields := []string{method}
	md, _ := metadata.FromOutgoingContext(ctx)
	for name, values := range md {
		for _, value := range values {
			fields = append(fields, name, value)
		}
	}
	size := binary.MaxVarintLen64
	for _, field := range fields {
		size += protowire.SizeBytes(len(field))
	}
	frame := protowire.AppendVarint(newFrame(message, size), uint64(len(fields)))
	for _, field := range fields {
		frame = protowire.AppendString(frame, field)
	}
	return finishFrame(frame, message)
}

// decodeRequest decodes the content of a frame with a request.
func decodeRequest(content []byte) (method string, md metadata.MD, message []byte, err error) {
	count, n := protowire.ConsumeVarint(content)
	var fields []string
	for i := uint64(0); i < count && n >= 0; i++ {
		content = content[n:]
		var field string
		field, n = protowire.ConsumeString(content)
		fields = append(fields, field)
	}
	if n < 0 || len(fields)%2 == 0 {
		return "", nil, nil, errMalformed
	}
	return fields[0], metadata.Pairs(fields[1:]...), content[n:], nil
}

// encodeResponse returns the frame of a response with a message, or of an error.
func encodeResponse(message any, err error) []byte {
	if err == nil {
		var frame []byte
		if frame, err = finishFrame(append(newFrame(message.(proto.Message), 1), succeeded), message.(proto.Message)); err == nil {
			return frame
		}
	}
	s, ok := status.FromError(err)
	if !ok {
		s = status.FromContextError(err)
	}
	frame, err := finishFrame(append(newFrame(s.Proto(), 1), failed), s.Proto())
	if err != nil { // a text that is not UTF-8
		return encodeResponse(nil, status.Error(s.Code(), "the error cannot be encoded"))
	}
	return frame
}

// decodeResponse sets the message of a response, or returns its error. malformed is set if it violates the protocol.
func decodeResponse(content []byte, message proto.Message) (malformed bool, err error) {
	var s statuspb.Status
	switch {
	case len(content) == 0:
	case content[0] == succeeded && proto.Unmarshal(content[1:], message) == nil:
		return false, nil
	case content[0] == failed && proto.Unmarshal(content[1:], &s) == nil && s.GetCode() != int32(codes.OK):
		return false, status.ErrorProto(&s)
	}
	return true, status.Error(codes.Unavailable, errMalformed.Error())
}
