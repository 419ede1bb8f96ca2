package daemon_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"connectrpc.com/connect/v2/connectproto"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// dialects are the protocols over HTTP/1.1, with the options that select them.
var dialects = map[string][]connecthttp.Option{
	"connect, JSON":         {connecthttp.WithProtoJSON()},
	"connect, binary":       nil,
	"connect, binary, gzip": {connecthttp.WithSendGzip()},
	"gRPC-Web":              {connecthttp.WithGRPCWeb()},
	"gRPC over HTTP/1.1":    {connecthttp.WithGRPC()},
	"gRPC-Web, JSON":        {connecthttp.WithGRPCWeb(), connecthttp.WithProtoJSON()},
}

// httpConn makes the calls of generated gRPC clients by package connect.
type httpConn struct{ client *connect.Client }

// dialHTTP returns a connection to the server at a URL whose transport is closed with
// the test.
func dialHTTP(t *testing.T, url string, dialect string) httpConn {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	options := append([]connecthttp.Option{connecthttp.WithReadMaxBytes(0)}, dialects[dialect]...)
	return httpConn{connect.NewClient(connecthttp.NewTransport(&http.Client{Transport: transport}, url, options...))}
}

// Invoke implements grpc.ClientConnInterface.
func (c httpConn) Invoke(ctx context.Context, method string, request, response any, _ ...grpc.CallOption) error {
	return toStatus(c.client.CallUnary(withHeaders(ctx), connect.Spec{Procedure: method}, request, response))
}

// NewStream implements grpc.ClientConnInterface.
func (c httpConn) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	spec := connect.Spec{Procedure: method}
	if desc.ClientStreams {
		spec.StreamType |= connect.StreamTypeClient
	}
	if desc.ServerStreams {
		spec.StreamType |= connect.StreamTypeServer
	}
	stream, err := c.client.CallClientStream(withHeaders(ctx), spec)
	if err != nil {
		return nil, toStatus(err)
	}
	return &httpStream{ClientStream: stream, ctx: ctx}, nil
}

// withHeaders sends the outgoing metadata as headers.
func withHeaders(ctx context.Context) context.Context {
	md, _ := metadata.FromOutgoingContext(ctx)
	ctx, info := connect.NewClientContext(ctx)
	for key, values := range md {
		info.RequestHeader().SetValues(key, values)
	}
	return ctx
}

// toStatus returns an error of package connect as a status with its details.
func toStatus(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	failed, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return err
	}
	st := status.New(codes.Code(failed.Code()), failed.Message()).Proto()
	for _, detail := range failed.Details() {
		st.Details = append(st.Details, connectproto.ErrorDetailToAny(detail))
	}
	return status.ErrorProto(st)
}

// httpStream is a stream of a [httpConn].
type httpStream struct {
	connect.ClientStream
	ctx context.Context
}

func (s *httpStream) Header() (metadata.MD, error) { return nil, nil }
func (s *httpStream) Trailer() metadata.MD         { return nil }
func (s *httpStream) Context() context.Context     { return s.ctx }

// SendMsg implements grpc.ClientStream.
func (s *httpStream) SendMsg(m any) error {
	err := s.Send(m)
	if errors.Is(err, io.EOF) {
		return io.EOF
	}
	return toStatus(err)
}

// RecvMsg implements grpc.ClientStream.
func (s *httpStream) RecvMsg(m any) error {
	err := s.Receive(m)
	if errors.Is(err, io.EOF) {
		_ = s.Close()
		return io.EOF
	}
	return toStatus(err)
}
