package fileworker

import (
	"bufio"
	"context"
	"net"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Serve serves a worker's two connections, which are Unix sockets, until the other end closes descriptors: gRPC on rpc, and
// what arrives on descriptors. Each descriptor of [Lease.ShareDescriptor] is passed to adopt, which owns it from then on and
// must not block. Only the server has the other ends, so calls are not authenticated. Serve waits for the handlers.
func Serve(descriptors, rpc net.Conn, messageBytes int, adopt func(fd int), register func(grpc.ServiceRegistrar), unary grpc.UnaryServerInterceptor, options ...grpc.ServerOption) {
	s := grpc.NewServer(append(options, grpc.UnaryInterceptor(unary),
		grpc.MaxRecvMsgSize(messageBytes), grpc.WaitForHandlers(true),
		grpc.StaticStreamWindowSize(streamWindow), grpc.StaticConnWindowSize(connectionWindow),
		grpc.ReadBufferSize(bufferSize), grpc.WriteBufferSize(bufferSize))...)
	calls := &unaryServer{ServiceRegistrar: s, methods: map[string]unaryMethod{}, interceptor: unary, messageBytes: messageBytes}
	register(calls)
	l := &listener{conns: make(chan net.Conn, 1)}
	l.conns <- rpc
	ctx, cancel := context.WithCancelCause(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(l) }) // the error is that the listener is closed
	receiveDescriptors(descriptors.(*net.UnixConn), adopt, func(conn net.Conn) {
		serving.Go(func() { calls.serve(ctx, conn) })
	})
	cancel(nil)
	s.Stop()
	serving.Wait()
	_ = descriptors.Close()
}

// listener accepts the connections in the channel, until it is closed.
type listener struct {
	conns chan net.Conn
	once  sync.Once
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	if conn, ok := <-l.conns; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.once.Do(func() { close(l.conns) })
	return nil
}

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return new(net.UnixAddr) }

// unaryServer serves unary calls on connections of their own. Services are registered on it and on the ServiceRegistrar.
type unaryServer struct {
	grpc.ServiceRegistrar
	methods      map[string]unaryMethod
	interceptor  grpc.UnaryServerInterceptor // nil: none
	messageBytes int                         // of the largest request
}

// unaryMethod is a method of a service. decode sets the request.
type unaryMethod func(ctx context.Context, decode func(request any) error) (response any, err error)

// RegisterService implements grpc.ServiceRegistrar.
func (s *unaryServer) RegisterService(desc *grpc.ServiceDesc, service any) {
	s.ServiceRegistrar.RegisterService(desc, service)
	for _, m := range desc.Methods {
		s.methods["/"+desc.ServiceName+"/"+m.MethodName] = func(ctx context.Context, decode func(any) error) (any, error) {
			return m.Handler(service, ctx, decode, s.interceptor)
		}
	}
}

// serve serves the calls on a connection, one after the other, until the other end closes it or ctx ends. That cancels the
// call under way.
func (s *unaryServer) serve(ctx context.Context, conn net.Conn) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	requests := make(chan []byte)
	go func() {
		defer close(requests)
		defer cancel(nil)
		for reader := bufio.NewReader(conn); ; {
			request, err := readFrame(reader, s.messageBytes)
			if err != nil {
				return
			}
			requests <- request
		}
	}()
	for request := range requests {
		_, _ = conn.Write(encodeResponse(s.handle(ctx, request))) // fails if the other end has closed it
	}
}

// handle calls the handler for a request.
func (s *unaryServer) handle(ctx context.Context, request []byte) (any, error) {
	name, md, message, err := decodeRequest(request)
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	method := s.methods[name]
	if method == nil {
		return nil, status.Error(codes.Unimplemented, "there is no method "+name)
	}
	ctx = grpc.NewContextWithServerTransportStream(metadata.NewIncomingContext(ctx, md), transportStream(name))
	return method(ctx, func(request any) error {
		if err := proto.Unmarshal(message, request.(proto.Message)); err != nil {
			return status.Error(codes.Internal, err.Error())
		}
		return nil
	})
}

// transportStream is the method of a call, for [grpc.Method]. A response has no metadata.
type transportStream string

// Method implements grpc.ServerTransportStream.
func (s transportStream) Method() string { return string(s) }

// SetHeader implements grpc.ServerTransportStream.
func (transportStream) SetHeader(metadata.MD) error { return nil }

// SendHeader implements grpc.ServerTransportStream.
func (transportStream) SendHeader(metadata.MD) error { return nil }

// SetTrailer implements grpc.ServerTransportStream.
func (transportStream) SetTrailer(metadata.MD) error { return nil }
