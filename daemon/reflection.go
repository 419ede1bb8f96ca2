package daemon

import (
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionv1alpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/grpc/status"
)

// reflectionStreams are the streams of server reflection. A client may keep one open
// and ask nothing, and that is no work for a graceful stop to wait for.
type reflectionStreams struct {
	ending    chan struct{} // closed when they end
	receivers sync.WaitGroup
}

func newReflectionStreams() *reflectionStreams {
	return &reflectionStreams{ending: make(chan struct{})}
}

// intercept is an interceptor of streams.
func (r *reflectionStreams) intercept(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	switch info.FullMethod {
	case reflectionv1.ServerReflection_ServerReflectionInfo_FullMethodName,
		reflectionv1alpha.ServerReflection_ServerReflectionInfo_FullMethodName:
		stream = &reflectionStream{ServerStream: stream, streams: r}
	}
	return handler(srv, stream)
}

// end ends those that there are and those that come. Call it once.
func (r *reflectionStreams) end() { close(r.ending) }

// wait waits for what received for them, which ends when the handlers have.
func (r *reflectionStreams) wait() { r.receivers.Wait() }

// reflectionStream is one of them.
type reflectionStream struct {
	grpc.ServerStream
	streams *reflectionStreams
}

// RecvMsg implements grpc.ServerStream. What it fails with is what the handler returns.
func (s *reflectionStream) RecvMsg(m any) error {
	received := make(chan error, 1)
	s.streams.receivers.Go(func() { received <- s.ServerStream.RecvMsg(m) })
	select {
	case err := <-received:
		return err
	case <-s.streams.ending:
		return status.Error(codes.Unavailable, errStopping.Error())
	}
}
