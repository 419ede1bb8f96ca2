package inproc

import (
	"context"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// serverStream is the handler's end of a call.
type serverStream struct {
	call       *call
	ctx        context.Context
	fullMethod string
	method     *method

	received bool // used only by the goroutine that calls RecvMsg
}

var _ grpc.ServerStream = (*serverStream)(nil)

// newServerStream returns the handler's end of c. Its context has the deadline of
// the caller's, the metadata and the peer, and nothing else, as over a network.
func newServerStream(caller context.Context, c *call, fullMethod string, m *method, md metadata.MD, from *peer.Peer) *serverStream {
	ss := &serverStream{call: c, fullMethod: fullMethod, method: m}
	ctx, cancel := context.WithCancelCause(context.Background())
	c.cancel = cancel
	if deadline, ok := caller.Deadline(); ok {
		var stopTimer context.CancelFunc
		ctx, stopTimer = context.WithDeadline(ctx, deadline)
		c.cancel = func(cause error) {
			cancel(cause) // first, because the child takes its cause from here
			stopTimer()
		}
	}
	ctx = metadata.NewIncomingContext(ctx, md)
	ctx = peer.NewContext(ctx, from)
	ss.ctx = grpc.NewContextWithServerTransportStream(ctx, transportStream{ss})
	return ss
}

// run calls the handler through the interceptor and ends the call with its
// result.
func (ss *serverStream) run(interceptor grpc.StreamServerInterceptor) {
	var err error
	if m := ss.method; interceptor == nil || m.isUnary() {
		err = m.handler(m.impl, ss)
	} else {
		err = interceptor(m.impl, ss, &grpc.StreamServerInfo{
			FullMethod:     ss.fullMethod,
			IsClientStream: m.clientStreams,
			IsServerStream: m.serverStreams,
		}, m.handler)
	}
	st, ok := status.FromError(err)
	if !ok {
		st = status.FromContextError(err)
	}
	ss.call.endByHandler(st, ErrHandlerReturned)
}

func (ss *serverStream) Context() context.Context { return ss.ctx }

func (ss *serverStream) SetHeader(md metadata.MD) error  { return ss.call.setHeader(md) }
func (ss *serverStream) SendHeader(md metadata.MD) error { return ss.call.sendHeader(md) }
func (ss *serverStream) SetTrailer(md metadata.MD)       { ss.call.setTrailer(md) }

// SendMsg passes m to the client. It blocks while the queue is full and fails
// with Canceled or DeadlineExceeded once the call has ended. An error ends the
// call.
func (ss *serverStream) SendMsg(m any) error {
	msg, err := toSend(m)
	ss.call.beginResponse()
	if err == nil && !ss.call.respond(msg) {
		err = ss.call.serverErr
	}
	if err != nil {
		ss.call.endByHandler(status.Convert(err), err)
	}
	return err
}

// RecvMsg blocks for the client's next message. It returns io.EOF after the last;
// any other error ends the call.
func (ss *serverStream) RecvMsg(m any) error {
	err := ss.recv(m)
	if err != nil && err != io.EOF {
		ss.call.endByHandler(status.Convert(err), err)
	}
	return err
}

func (ss *serverStream) recv(m any) error {
	msg, err := ss.call.nextRequest()
	if err == io.EOF && !ss.method.clientStreams && !ss.received {
		return status.Error(codes.Internal, "cardinality violation: received no request message from non-client-streaming RPC")
	}
	if err != nil {
		return err
	}
	if err := receive(msg, m); err != nil {
		return err
	}
	ss.received = true
	if ss.method.clientStreams {
		return nil
	}
	switch _, err := ss.call.nextRequest(); err {
	case nil:
		return status.Error(codes.Internal, "cardinality violation: received multiple request messages for non-client-streaming RPC")
	case io.EOF:
		return nil
	default:
		return err
	}
}

// transportStream is what handlers find by
// [grpc.ServerTransportStreamFromContext].
type transportStream struct{ ss *serverStream }

var _ grpc.ServerTransportStream = transportStream{}

func (t transportStream) Method() string                  { return t.ss.fullMethod }
func (t transportStream) SetHeader(md metadata.MD) error  { return t.ss.call.setHeader(md) }
func (t transportStream) SendHeader(md metadata.MD) error { return t.ss.call.sendHeader(md) }

func (t transportStream) SetTrailer(md metadata.MD) error {
	t.ss.call.setTrailer(md)
	return nil
}
