package gateway

import (
	"log/slog"

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

// addTrace gives a request without a trace context the one that the transport received
// beside it.
func (c *receiver) addTrace(m *jsonrpc.Message) {
	if transport, ok := c.conn.(jsonrpc.TraceReceiver); ok && m.Trace == nil {
		m.Trace = transport.ReceivedTrace()
	}
}

// setTrace has the transport send the trace context beside the next message, if it can.
// sending is held.
func (o *outgoing) setTrace(trace tracecontext.Context) {
	if transport, ok := o.conn.(jsonrpc.TraceSender); ok && !trace.IsZero() {
		transport.SendTrace(jsonrpc.Trace{Parent: trace.Parent(), State: trace.State()})
	}
}

// tracedLog returns a logger with the trace.
func tracedLog(log *slog.Logger, trace tracecontext.Context) *slog.Logger {
	if trace.IsZero() {
		return log
	}
	return log.With(slog.String("trace_id", trace.TraceID()), slog.String("span_id", trace.SpanID()))
}
