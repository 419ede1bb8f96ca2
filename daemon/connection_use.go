package daemon

import (
	"context"
	"errors"

	middleware "github.com/grpc-ecosystem/go-grpc-middleware/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"

	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/listen"
	"github.com/execwire/execwire/server"
)

// errCallOver ends the context of a finished call.
var errCallOver = errors.New("the call is over")

// admissionOf returns the admission of a call's connection, if its listener has one.
func admissionOf(ctx context.Context) (listen.Admission, bool) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return listen.Admission{}, false
	}
	info, ok := p.AuthInfo.(listen.AuthInfo)
	return info.Admission, ok
}

// inUse marks the connection of a call as in use until end is called. The returned
// context ends when the connection is evicted.
func inUse(ctx context.Context, method string) (during context.Context, end func()) {
	info, ok := admissionOf(ctx)
	if !ok || server.IsPublic(method) {
		return ctx, func() {}
	}
	during, cancel := context.WithCancelCause(ctx)
	stop := info.Use(func(why error) { cancel(why) })
	return during, func() {
		stop()
		cancel(errCallOver)
	}
}

// orEvicted replaces the error of a call by the reason why its connection was
// evicted, if that ended the call.
func orEvicted(ctx context.Context, err error) error {
	if evicted, ok := errors.AsType[*auth.Error](context.Cause(ctx)); ok && err != nil {
		return evicted
	}
	return err
}

// useUnary is an interceptor that marks the connection as in use during a unary call.
func useUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	ctx, end := inUse(ctx, info.FullMethod)
	defer end()
	resp, err := handler(ctx, req)
	return resp, orEvicted(ctx, err)
}

// useStream is useUnary for streams.
func useStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	ctx, end := inUse(stream.Context(), info.FullMethod)
	defer end()
	return orEvicted(ctx, handler(srv, &middleware.WrappedServerStream{ServerStream: stream, WrappedContext: ctx}))
}
