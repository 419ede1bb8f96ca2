package inproc

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// defaultQueueDepth is how many messages of a stream may be under way in one
// direction before the sender waits.
const defaultQueueDepth = 16

type config struct {
	unary    []grpc.UnaryServerInterceptor
	stream   []grpc.StreamServerInterceptor
	depth    int
	authInfo credentials.AuthInfo
}

// Option adjusts a [Channel] while [New] makes it.
type Option func(*config)

// WithUnaryInterceptors appends interceptors for unary calls; the first given
// is the outermost, as with grpc.ChainUnaryInterceptor.
func WithUnaryInterceptors(is ...grpc.UnaryServerInterceptor) Option {
	return func(c *config) { c.unary = append(c.unary, is...) }
}

// WithStreamInterceptors appends interceptors for streaming calls; the first
// given is the outermost, as with grpc.ChainStreamInterceptor.
func WithStreamInterceptors(is ...grpc.StreamServerInterceptor) Option {
	return func(c *config) { c.stream = append(c.stream, is...) }
}

// WithQueueDepth sets how many messages may be under way in each direction of a
// stream before its sender waits for the receiver. Less than one counts as one;
// without this option it is 16.
func WithQueueDepth(messages int) Option {
	return func(c *config) { c.depth = max(messages, 1) }
}

// WithAuthInfo sets what handlers find as AuthInfo in peer.FromContext, so that
// an authenticating interceptor can tell who calls. Without it that is
// [AuthInfo].
func WithAuthInfo(info credentials.AuthInfo) Option {
	return func(c *config) { c.authInfo = info }
}

// chainUnary makes one interceptor of many, or nil of none.
func chainUnary(is []grpc.UnaryServerInterceptor) grpc.UnaryServerInterceptor {
	if len(is) == 0 {
		return nil
	}
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		for i := len(is) - 1; i >= 0; i-- {
			outer, inner := is[i], handler
			handler = func(ctx context.Context, req any) (any, error) {
				return outer(ctx, req, info, inner)
			}
		}
		return handler(ctx, req)
	}
}

// chainStream makes one interceptor of many, or nil of none.
func chainStream(is []grpc.StreamServerInterceptor) grpc.StreamServerInterceptor {
	if len(is) == 0 {
		return nil
	}
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		for i := len(is) - 1; i >= 0; i-- {
			outer, inner := is[i], handler
			handler = func(srv any, ss grpc.ServerStream) error {
				return outer(srv, ss, info, inner)
			}
		}
		return handler(srv, ss)
	}
}
