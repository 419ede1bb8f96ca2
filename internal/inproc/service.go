package inproc

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// service is one registered implementation. It is immutable.
type service struct {
	impl     any
	metadata any
	methods  map[string]*method
}

// method is one way into a service; a unary one has been given the shape of a
// stream, so that there is a single way to run a call.
type method struct {
	impl          any
	handler       grpc.StreamHandler
	clientStreams bool
	serverStreams bool
}

func (m *method) isUnary() bool { return !m.clientStreams && !m.serverStreams }

func newService(desc *grpc.ServiceDesc, impl any, unary grpc.UnaryServerInterceptor) *service {
	s := &service{impl: impl, metadata: desc.Metadata, methods: make(map[string]*method)}
	for i := range desc.Methods {
		d := &desc.Methods[i]
		s.methods[d.MethodName] = &method{impl: impl, handler: unaryAsStream(d, unary)}
	}
	for i := range desc.Streams {
		d := &desc.Streams[i]
		s.methods[d.StreamName] = &method{
			impl:          impl,
			handler:       d.Handler,
			clientStreams: d.ClientStreams,
			serverStreams: d.ServerStreams,
		}
	}
	return s
}

func unaryAsStream(d *grpc.MethodDesc, interceptor grpc.UnaryServerInterceptor) grpc.StreamHandler {
	return func(impl any, stream grpc.ServerStream) error {
		reply, err := d.Handler(impl, stream.Context(), stream.RecvMsg, interceptor)
		if err != nil {
			return err
		}
		return stream.SendMsg(reply)
	}
}

func (s *service) info() grpc.ServiceInfo {
	info := grpc.ServiceInfo{Metadata: s.metadata}
	for name, m := range s.methods {
		info.Methods = append(info.Methods, grpc.MethodInfo{
			Name:           name,
			IsClientStream: m.clientStreams,
			IsServerStream: m.serverStreams,
		})
	}
	return info
}

func unimplemented(format string, args ...any) *method {
	err := status.Errorf(codes.Unimplemented, format, args...)
	return &method{handler: func(any, grpc.ServerStream) error { return err }}
}
