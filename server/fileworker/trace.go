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

func traceStream(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
	if span := tracing.FromContext(ctx).Child(SpanName, tracing.Client, time.Now()); span != nil {
		options = append(options, grpc.OnFinish(func(err error) { span.End(err != nil) }))
	}
	return open(ctx, desc, conn, method, options...)
}
