package fileworker

import (
	"context"
	"time"

	"google.golang.org/grpc"

	"github.com/execwire/execwire/internal/tracing"
)

// SpanName is the name of the span of a call that a worker makes, below that of the call of
// the client.
const SpanName = "file worker"

// traced returns the options of a call with its span, which ends with the call.
func traced(ctx context.Context, options []grpc.CallOption) []grpc.CallOption {
	span := tracing.FromContext(ctx).Child(SpanName, tracing.Client, time.Now())
	if span == nil {
		return options
	}
	return append(options, grpc.OnFinish(func(err error) { span.End(err != nil) }))
}

func traceUnary(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	return invoke(ctx, method, req, reply, conn, traced(ctx, options)...)
}

func traceStream(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
	return open(ctx, desc, conn, method, traced(ctx, options)...)
}
