package server

import (
	"context"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/logging"
	"google.golang.org/grpc"

	"github.com/execwire/execwire/internal/auth"
)

// callRecord is what the log tells of a call beside how it ended. It is written
// further in than the log is, before the call ends.
type callRecord struct {
	principal, via auth.Principal
	refusal        error // why the caller was not let in
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
	return handler(context.WithValue(ctx, callRecordKey{}, new(callRecord)), req)
}

func recordStream(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	ctx := context.WithValue(stream.Context(), callRecordKey{}, new(callRecord))
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
	return fields
}
