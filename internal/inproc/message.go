package inproc

import (
	"fmt"
	"reflect"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// toSend checks that m is something a wire could carry.
func toSend(m any) (proto.Message, error) {
	msg, err := messageOf(m)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "grpc: error while marshaling: proto: failed to marshal, %v", err)
	}
	return msg, nil
}

// receive fills dst, which generated code has just made, with the fields of src.
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
	switch m := m.(type) {
	case proto.Message:
		return m, nil
	case protoadapt.MessageV1:
		return protoadapt.MessageV2Of(m), nil
	default:
		return nil, fmt.Errorf("message is %T, want proto.Message", m)
	}
}

// shareFields makes dst equal to src without copying what the fields of src
// refer to. If the two are different Go types, as between a generated and a
// dynamic message, it goes through the encoding, as a wire does.
func shareFields(dst, src proto.Message) error {
	if reflect.TypeOf(dst) != reflect.TypeOf(src) {
		return reencode(dst, src)
	}
	from, to := src.ProtoReflect(), dst.ProtoReflect()
	if from.Descriptor() != to.Descriptor() {
		return reencode(dst, src)
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

func reencode(dst, src proto.Message) error {
	b, err := proto.Marshal(src)
	if err != nil {
		return err
	}
	return proto.Unmarshal(b, dst)
}
