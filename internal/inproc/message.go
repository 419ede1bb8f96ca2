package inproc

import (
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// toSend checks that m could be encoded.
func toSend(m any) (proto.Message, error) {
	msg, err := messageOf(m)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "grpc: error while marshaling: proto: failed to marshal, %v", err)
	}
	return msg, nil
}

// receive sets the fields of dst to those of src.
func receive(src proto.Message, dst any) error {
	msg, err := messageOf(dst)
	if err == nil {
		err = shareFields(msg, src)
	}
	if err != nil {
		return status.Errorf(codes.Internal, "grpc: failed to unmarshal the received message: %v", err)
	}
	return nil
}

func messageOf(m any) (proto.Message, error) {
	msg, ok := m.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("message is %T, want proto.Message", m)
	}
	return msg, nil
}

// shareFields makes dst, of the same type, equal to src without copying what the
// fields of src refer to.
func shareFields(dst, src proto.Message) error {
	from, to := src.ProtoReflect(), dst.ProtoReflect()
	if from.Type() != to.Type() {
		return fmt.Errorf("message is %T, and a %T was sent", dst, src)
	}
	proto.Reset(dst)
	from.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		to.Set(fd, v)
		return true
	})
	if unknown := from.GetUnknown(); len(unknown) > 0 {
		to.SetUnknown(unknown)
	}
	return nil
}
