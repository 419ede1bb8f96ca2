package server

import (
	"context"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/logging"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/tracecontext"
)

// callRecord is what the log tells of a call beside how it ended. It is written
// further in than the log is, before the call ends.
type callRecord struct {
	principal, via auth.Principal
	refusal        error // why the caller was not let in
	trace          tracecontext.Context
}

// newCallRecord returns the record of a call that begins. A caller that says
// twice where it is in its trace is nowhere.
func newCallRecord(ctx context.Context) *callRecord {
	record := new(callRecord)
	if parents := metadata.ValueFromIncomingContext(ctx, tracecontext.ParentKey); len(parents) == 1 {
		record.trace = tracecontext.Parse(parents[0], "")
	}
	return record
}

type callRecordKey struct{}

// callRecordOf returns the record of a call; one that nobody reads if it came by
// no interceptor.
func callRecordOf(ctx context.Context) *callRecord {
	if record, ok := ctx.Value(callRecordKey{}).(*callRecord); ok {
		return record
	}
	return new(callRecord)
}

func recordUnary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	return handler(context.WithValue(ctx, callRecordKey{}, newCallRecord(ctx)), req)
}

func recordStream(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	ctx := context.WithValue(stream.Context(), callRecordKey{}, newCallRecord(stream.Context()))
	return handler(srv, &recordedStream{ServerStream: stream, ctx: ctx})
}

type recordedStream struct {
	grpc.ServerStream
	ctx context.Context
}

// Context implements grpc.ServerStream.
func (r *recordedStream) Context() context.Context { return r.ctx }

// fields are what the log says of the record. What a caller showed is not in
// it, nor in the errors of package auth.
func (r *callRecord) fields() logging.Fields {
	var fields logging.Fields
	if !r.principal.IsZero() {
		fields = append(fields, "principal", r.principal.Name)
	}
	if !r.via.IsZero() {
		fields = append(fields, "via", r.via.Name)
	}
	if r.refusal != nil {
		fields = append(fields, "refusal", r.refusal.Error())
	}
	return append(fields, r.traceFields()...)
}

// traceFields are those by which the lines of a call are found from a trace.
func (r *callRecord) traceFields() logging.Fields {
	if r.trace.IsZero() {
		return nil
	}
	return logging.Fields{"trace_id", r.trace.TraceID(), "span_id", r.trace.SpanID()}
}
