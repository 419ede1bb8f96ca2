package gateway

import (
	"context"
	"log/slog"

	"google.golang.org/grpc/metadata"

	"github.com/execwire/execwire/internal/jsonrpc"
	"github.com/execwire/execwire/internal/tracecontext"
)

// traceOf returns the trace context of a message, without malformed parts.
func traceOf(m jsonrpc.Message) tracecontext.Context {
	if m.Trace == nil {
		return tracecontext.Context{}
	}
	return tracecontext.Parse(m.Trace.Parent, m.Trace.State)
}

// traced returns a context that propagates the trace to the server.
func traced(ctx context.Context, trace tracecontext.Context) context.Context {
	if trace.IsZero() {
		return ctx
	}
	ctx = metadata.AppendToOutgoingContext(ctx, tracecontext.ParentKey, trace.Parent())
	if state := trace.State(); state != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, tracecontext.StateKey, state)
	}
	return ctx
}

// tracedLog returns a logger with the trace.
func tracedLog(log *slog.Logger, trace tracecontext.Context) *slog.Logger {
	if trace.IsZero() {
		return log
	}
	return log.With(slog.String("trace_id", trace.TraceID()), slog.String("span_id", trace.SpanID()))
}
