package daemon

import (
	"context"
	"errors"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionv1alpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/grpc/status"
)

// grpcStreams ends the streams of gRPC's own services when the server stops, because a
// graceful stop waits for them: those of reflection, which may be idle, as soon as
// draining ends, and watches of health once stopped has ended and the client has
// received the final status.
type grpcStreams struct {
	draining, stopped context.Context
	drain, stop       context.CancelCauseFunc
	receivers         sync.WaitGroup // they end after the handlers
}

var errStopped = errors.New("the server has stopped")

func newGRPCStreams() *grpcStreams {
	s := &grpcStreams{}
	s.draining, s.drain = context.WithCancelCause(context.Background())
	s.stopped, s.stop = context.WithCancelCause(context.Background())
	return s
}

// intercept is a stream interceptor.
func (s *grpcStreams) intercept(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	switch info.FullMethod {
	case reflectionv1.ServerReflection_ServerReflectionInfo_FullMethodName,
		reflectionv1alpha.ServerReflection_ServerReflectionInfo_FullMethodName:
		return s.handle(srv, stream, handler, s.draining)
	case healthpb.Health_Watch_FullMethodName: // see SendMsg
		return s.handle(srv, stream, handler, context.Background())
	}
	return handler(srv, stream)
}

// handle calls the handler with a stream that can be ended, and that ends with a context.
func (s *grpcStreams) handle(srv any, stream grpc.ServerStream, handler grpc.StreamHandler, end context.Context) error {
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	own := &grpcStream{ServerStream: stream, streams: s, ctx: ctx, cancel: cancel}
	own.endWith(end)
	err := handler(srv, own)
	if cause := context.Cause(ctx); errors.Is(cause, errStopping) || errors.Is(cause, errStopped) {
		return status.Error(codes.Unavailable, cause.Error())
	}
	return err
}

// grpcStream is a stream that can be ended.
type grpcStream struct {
	grpc.ServerStream
	streams *grpcStreams
	ctx     context.Context
	cancel  context.CancelCauseFunc
}

// endWith ends the stream when a context ends.
func (s *grpcStream) endWith(end context.Context) {
	stop := context.AfterFunc(end, func() { s.cancel(context.Cause(end)) })
	context.AfterFunc(s.ctx, func() { stop() })
}

// Context implements grpc.ServerStream.
func (s *grpcStream) Context() context.Context { return s.ctx }

// SendMsg implements grpc.ServerStream.
func (s *grpcStream) SendMsg(m any) error {
	err := s.ServerStream.SendMsg(m)
	if health, ok := m.(*healthpb.HealthCheckResponse); ok && health.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		s.endWith(s.streams.stopped)
	}
	return err
}

// RecvMsg implements grpc.ServerStream.
func (s *grpcStream) RecvMsg(m any) error {
	received := make(chan error, 1)
	s.streams.receivers.Go(func() { received <- s.ServerStream.RecvMsg(m) })
	select {
	case err := <-received:
		return err
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
	}
}
