package tracing

import (
	"context"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/execwire/execwire/internal/errorinfo"
	"github.com/execwire/execwire/internal/tracecontext"
)

// maxNameBytes bounds the names of methods, which callers choose.
const maxNameBytes = 100

// UnaryInterceptors returns what records a span for each call. A nil tracer has none.
func (t *Tracer) UnaryInterceptors() []grpc.UnaryServerInterceptor {
	if t == nil {
		return nil
	}
	return []grpc.UnaryServerInterceptor{func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		ctx, span := t.startCall(ctx, info.FullMethod)
		resp, err := handler(ctx, req)
		span.endCall(err)
		return resp, err
	}}
}

// StreamInterceptors is UnaryInterceptors for streams.
func (t *Tracer) StreamInterceptors() []grpc.StreamServerInterceptor {
	if t == nil {
		return nil
	}
	return []grpc.StreamServerInterceptor{func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		ctx, span := t.startCall(stream.Context(), info.FullMethod)
		if span == nil {
			return handler(srv, stream)
		}
		err := handler(srv, &tracedStream{stream, ctx})
		span.endCall(err)
		return err
	}}
}

// tracedStream is a stream whose context has the span.
type tracedStream struct {
	grpc.ServerStream
	ctx context.Context
}

// Context implements grpc.ServerStream.
func (s *tracedStream) Context() context.Context { return s.ctx }

// startCall starts the span of a call. Its context is in the metadata, too, in place of
// that of the caller.
func (t *Tracer) startCall(ctx context.Context, method string) (context.Context, *Span) {
	method = strings.TrimPrefix(method, "/")
	span := t.Start(tracecontext.FromIncoming(ctx), strings.ToValidUTF8(method[:min(len(method), maxNameBytes)], "?"), Server)
	if span == nil {
		return ctx, nil
	}
	service, name, _ := strings.Cut(span.name, "/")
	span.SetString("rpc.system", "grpc")
	span.SetString("rpc.service", service)
	span.SetString("rpc.method", name)
	md, _ := metadata.FromIncomingContext(ctx)
	md = md.Copy()
	md.Set(tracecontext.ParentKey, span.Context().Parent())
	return NewContext(metadata.NewIncomingContext(ctx, md), span), span
}

// serverFaults are the codes that make the span of a call an error, by the conventions for
// servers: the others are faults of the caller.
var serverFaults = []codes.Code{codes.Unknown, codes.DeadlineExceeded, codes.Unimplemented, codes.Internal, codes.Unavailable, codes.DataLoss}

// endCall ends the span of a call. That of a caller that was not authenticated is not
// recorded: it must not displace others.
func (s *Span) endCall(err error) {
	st := status.Convert(err)
	if s == nil || st.Code() == codes.Unauthenticated {
		return
	}
	s.SetInt("rpc.grpc.status_code", int64(st.Code()))
	if info := errorinfo.Of(err); info != nil {
		s.SetString("error.type", info.GetReason())
	}
	s.End(slices.Contains(serverFaults, st.Code()))
}
