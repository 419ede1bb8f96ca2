package execserver

import (
	"context"
	"io"
	"path"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// Invoke implements grpc.ClientConnInterface.
func (c *Conn) Invoke(ctx context.Context, method string, args, reply any, options ...grpc.CallOption) error {
	return c.explain(ctx, method, c.channel.Invoke(ctx, method, args, reply, options...))
}

// NewStream implements grpc.ClientConnInterface.
func (c *Conn) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, options ...grpc.CallOption) (grpc.ClientStream, error) {
	stream, err := c.channel.NewStream(ctx, desc, method, options...)
	if err != nil {
		return nil, c.explain(ctx, method, err)
	}
	return &clientStream{ClientStream: stream, conn: c, ctx: ctx, method: method}, nil
}

// clientStream explains the errors of a stream.
type clientStream struct {
	grpc.ClientStream
	conn   *Conn
	ctx    context.Context // the caller's: that of the stream is done once the stream has ended
	method string
}

// SendMsg implements grpc.ClientStream.
func (s *clientStream) SendMsg(m any) error {
	return s.conn.explain(s.ctx, s.method, s.ClientStream.SendMsg(m))
}

// RecvMsg implements grpc.ClientStream.
func (s *clientStream) RecvMsg(m any) error {
	return s.conn.explain(s.ctx, s.method, s.ClientStream.RecvMsg(m))
}

// grpcURLs are the URLs for calls that the exec-server protocol lacks.
const grpcURLs = "tcp://, tls://, unix:// or a relay"

// explain adds to an error that the connection is permanently lost, or which URLs support
// a call that the protocol lacks.
func (c *Conn) explain(ctx context.Context, method string, err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	st := status.Convert(err)
	switch st.Code() {
	case codes.Unavailable, codes.Canceled:
		if c.ctx.Err() != nil && ctx.Err() == nil {
			return c.goneStatus()
		}
	case codes.Unimplemented:
		if len(st.Details()) == 0 {
			return failure(execwirev1.ErrorReason_ERROR_REASON_NOT_IMPLEMENTED,
				"%s cannot be called over the exec-server protocol (ws://, wss://, stdio:): reach an execwire server by "+grpcURLs, path.Base(method))
		}
	}
	return err
}
