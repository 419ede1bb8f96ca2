package main

import (
	"context"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/anypb"

	statuspb "google.golang.org/genproto/googleapis/rpc/status"
)

// unimplemented is the method that the service does not have.
const unimplemented = "Unimplemented"

// serviceDesc describes ConformanceService, whose methods differ only in how many messages
// they have: each responds as its first request says.
func serviceDesc() *grpc.ServiceDesc {
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(conformance + ".ConformanceService")
	if err != nil {
		panic(err)
	}
	service := found.(protoreflect.ServiceDescriptor)
	desc := &grpc.ServiceDesc{ServiceName: string(service.FullName())}
	for i := range service.Methods().Len() {
		method := service.Methods().Get(i)
		if method.Name() == unimplemented {
			continue
		}
		desc.Streams = append(desc.Streams, grpc.StreamDesc{
			StreamName: string(method.Name()), ClientStreams: method.IsStreamingClient(), ServerStreams: method.IsStreamingServer(),
			Handler: func(_ any, stream grpc.ServerStream) error { return serve(method, stream) },
		})
	}
	return desc
}

// serve serves a call.
func serve(method protoreflect.MethodDescriptor, stream grpc.ServerStream) error {
	var requests []protoreflect.Message
	for len(requests) == 0 || method.IsStreamingClient() {
		request := dynamicpb.NewMessage(method.Input())
		err := stream.RecvMsg(request.Interface())
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		requests = append(requests, request)
	}
	info, err := requestInfo(stream.Context(), requests)
	if err != nil {
		return err
	}
	if len(requests) == 0 || !has(requests[0], "response_definition") {
		if method.IsStreamingServer() {
			return nil
		}
		return stream.SendMsg(response(method, nil, info))
	}
	definition := field(requests[0], "response_definition").Message()
	if err := stream.SendHeader(metadataIn(definition, "response_headers")); err != nil {
		return err
	}
	stream.SetTrailer(metadataIn(definition, "response_trailers"))
	delay := time.Duration(field(definition, "response_delay_ms").Uint()) * time.Millisecond
	for _, data := range responseData(method, definition) {
		select {
		case <-time.After(delay):
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
		if err := stream.SendMsg(response(method, data, info)); err != nil {
			return err
		}
		info = nil // only in the first
	}
	if !has(definition, "error") {
		return nil
	}
	return failure(field(definition, "error").Message(), info)
}

// responseData returns the data of each response.
func responseData(method protoreflect.MethodDescriptor, definition protoreflect.Message) (data [][]byte) {
	switch {
	case method.IsStreamingServer():
		all := field(definition, "response_data").List()
		for i := range all.Len() {
			data = append(data, all.Get(i).Bytes())
		}
	case !has(definition, "error"):
		data = append(data, field(definition, "response_data").Bytes())
	}
	return data
}

// response returns a response of a method.
func response(method protoreflect.MethodDescriptor, data []byte, info protoreflect.Message) proto.Message {
	payload := newMessage("ConformancePayload")
	if len(data) > 0 {
		set(payload, "data", protoreflect.ValueOfBytes(data))
	}
	if info != nil {
		set(payload, "request_info", protoreflect.ValueOfMessage(info))
	}
	m := dynamicpb.NewMessage(method.Output())
	set(m, "payload", protoreflect.ValueOfMessage(payload))
	return m.Interface()
}

// requestInfo describes what has arrived.
func requestInfo(ctx context.Context, requests []protoreflect.Message) (protoreflect.Message, error) {
	info := newMessage("ConformancePayload.RequestInfo")
	md, _ := metadata.FromIncomingContext(ctx)
	for key, values := range md {
		header := newMessage("Header")
		set(header, "name", protoreflect.ValueOfString(key))
		for _, value := range values {
			list(header, "value").Append(protoreflect.ValueOfString(encoded(key, value)))
		}
		list(info, "request_headers").Append(protoreflect.ValueOfMessage(header))
	}
	if deadline, ok := ctx.Deadline(); ok {
		set(info, "timeout_ms", protoreflect.ValueOfInt64(max(time.Until(deadline), 0).Milliseconds()))
	}
	for _, request := range requests {
		packed, err := anypb.New(request.Interface())
		if err != nil {
			return nil, err
		}
		into := list(info, "requests").NewElement()
		if err := copyOf(packed, into.Message()); err != nil {
			return nil, err
		}
		list(info, "requests").Append(into)
	}
	return info, nil
}

// copyOf makes into, of another Go type, equal to m.
func copyOf(m proto.Message, into protoreflect.Message) error {
	encoded, err := proto.Marshal(m)
	if err != nil {
		return err
	}
	return proto.Unmarshal(encoded, into.Interface())
}

// metadataIn returns the headers in a field of a definition.
func metadataIn(definition protoreflect.Message, name protoreflect.Name) metadata.MD {
	md := make(metadata.MD)
	headers := field(definition, name).List()
	for i := range headers.Len() {
		key := field(headers.Get(i).Message(), "name").String()
		values := field(headers.Get(i).Message(), "value").List()
		for j := range values.Len() {
			md.Append(key, decoded(key, values.Get(j).String()))
		}
	}
	return md
}

// failure returns the error of a definition, with info as a further detail unless it was
// sent.
func failure(definition, info protoreflect.Message) error {
	st := &statuspb.Status{
		Code:    int32(field(definition, "code").Enum()),
		Message: field(definition, "message").String(),
	}
	details := field(definition, "details").List()
	for i := range details.Len() {
		detail := new(anypb.Any)
		if err := copyOf(details.Get(i).Message().Interface(), detail.ProtoReflect()); err != nil {
			return err
		}
		st.Details = append(st.Details, detail)
	}
	if info != nil {
		packed, err := anypb.New(info.Interface())
		if err != nil {
			return err
		}
		st.Details = append(st.Details, packed)
	}
	return status.ErrorProto(st)
}
