package daemon

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"

	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/server"
)

// errCallOver ends the context of a call that is over.
var errCallOver = errors.New("the call is over")

// admissionOf returns that of the connection a call came on, if its listener has one.
func admissionOf(ctx context.Context) (admission, bool) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil, false
	}
	info, ok := p.AuthInfo.(admission)
	return info, ok
}

// inUse notes that the connection of a call is in use until end is called. The context
// that is returned ends when the connection is evicted.
func inUse(ctx context.Context, method string) (during context.Context, end func()) {
	info, ok := admissionOf(ctx)
	if !ok || server.IsAnybodys(method) {
		return ctx, func() {}
	}
	during, cancel := context.WithCancelCause(ctx)
	stop := info.Use(func(why error) { cancel(why) })
	return during, func() {
		stop()
		cancel(errCallOver)
	}
}

// orEvicted returns why the connection was evicted, if that is what ended the context of
// a call that failed with err, and err otherwise.
func orEvicted(ctx context.Context, err error) error {
	if evicted, ok := errors.AsType[*auth.Error](context.Cause(ctx)); ok && err != nil {
		return evicted
	}
	return err
}

// useUnary is an interceptor: the connection of a unary call is in use until it is
// answered. A call that fails because its connection was evicted fails with that.
func useUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	ctx, end := inUse(ctx, info.FullMethod)
	defer end()
	resp, err := handler(ctx, req)
	return resp, orEvicted(ctx, err)
}

// useStream is useUnary of streams.
func useStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	ctx, end := inUse(stream.Context(), info.FullMethod)
	defer end()
	return orEvicted(ctx, handler(srv, &usedStream{ServerStream: stream, ctx: ctx}))
}

// usedStream is a stream whose context ends when its connection is evicted.
type usedStream struct {
	grpc.ServerStream
	ctx context.Context
}

// Context implements grpc.ServerStream.
func (s *usedStream) Context() context.Context { return s.ctx }
