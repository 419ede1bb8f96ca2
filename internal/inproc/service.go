package inproc

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// service is a registered implementation. It is immutable.
type service struct{ methods map[string]*method }

// method is a method of a service. A unary method is adapted to the form of a
// stream, so that all calls run alike.
type method struct {
	impl          any
	handler       grpc.StreamHandler
	clientStreams bool
	serverStreams bool
}

func (m *method) isUnary() bool { return !m.clientStreams && !m.serverStreams }

func newService(desc *grpc.ServiceDesc, impl any, unary grpc.UnaryServerInterceptor) *service {
	s := &service{methods: make(map[string]*method)}
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

func unimplemented(format string, args ...any) *method {
	err := status.Errorf(codes.Unimplemented, format, args...)
	return &method{handler: func(any, grpc.ServerStream) error { return err }}
}
