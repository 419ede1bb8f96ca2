package inproc

import (
	"context"

	"google.golang.org/grpc"
)

// Option configures a [Channel].
type Option func(*Channel)

// WithUnaryInterceptors sets the interceptors for unary calls; the first is the
// outermost, as with grpc.ChainUnaryInterceptor.
func WithUnaryInterceptors(is ...grpc.UnaryServerInterceptor) Option {
	return func(ch *Channel) { ch.unary = chainUnary(is) }
}

// WithStreamInterceptors sets the interceptors for streaming calls; the first is
// the outermost, as with grpc.ChainStreamInterceptor.
func WithStreamInterceptors(is ...grpc.StreamServerInterceptor) Option {
	return func(ch *Channel) { ch.stream = chainStream(is) }
}

// chainUnary combines interceptors into one; nil for none.
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

// chainStream combines interceptors into one; nil for none.
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
