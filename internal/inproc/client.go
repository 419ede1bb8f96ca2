package inproc

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

var unaryDesc = &grpc.StreamDesc{}

// Invoke makes a unary call and returns when the handler has responded or ctx has
// ended. Every error is a status.
func (ch *Channel) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	return ch.invoke(ctx, program, method, args, reply, opts)
}

func (ch *Channel) invoke(ctx context.Context, from *peer.Peer, method string, args, reply any, opts []grpc.CallOption) error {
	cs, handle, err := ch.newStream(ctx, from, unaryDesc, method, opts)
	if err != nil {
		return err
	}
	if _, inCaller := optionOf[InCaller](opts); !inCaller {
		go handle()
		handle = func() {}
	}
	err = cs.SendMsg(args)
	handle()
	if err != nil {
		return err
	}
	err = cs.RecvMsg(reply)
	cs.call.report(opts)
	return err
}

// NewStream starts a streaming call; its handler starts at once. As with any gRPC
// connection the caller must receive until an error, or cancel ctx.
func (ch *Channel) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return ch.open(ctx, program, desc, method, opts)
}

func (ch *Channel) open(ctx context.Context, from *peer.Peer, desc *grpc.StreamDesc, method string, opts []grpc.CallOption) (grpc.ClientStream, error) {
	cs, handle, err := ch.newStream(ctx, from, desc, method, opts)
	if err != nil {
		return nil, err // not cs: a nil *clientStream would be a non-nil interface
	}
	go handle()
	return cs, nil
}

// newStream returns the caller's end of a new call, and the function that handles it.
func (ch *Channel) newStream(ctx context.Context, from *peer.Peer, desc *grpc.StreamDesc, fullMethod string, opts []grpc.CallOption) (*clientStream, func(), error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, status.FromContextError(err).Err()
	}
	md, _ := metadata.FromOutgoingContext(ctx) // a copy
	m := ch.lookup(fullMethod)
	c := newCall(queueFor(m.clientStreams), queueFor(m.serverStreams))
	if m.serverStreams {
		c.sending = make(chan struct{}, 1)
	}
	_, c.handedBack = optionOf[HandBack](opts)
	_, c.acknowledged = optionOf[HandBackAcknowledged](opts)
	lend, _ := optionOf[Lend](opts)
	taker, _ := optionOf[TakeFile](opts)
	c.lent, c.takeFile = lend.Memory, taker.To
	ss := newServerStream(ctx, c, fullMethod, m, md, from)
	cs := newClientStream(ctx, c, desc)
	if !ch.add(cs) {
		cs.abort()
		return nil, nil, errUnavailable
	}
	ch.handlers.Add(1)
	return cs, func() {
		defer ch.handlers.Done()
		defer ch.remove(cs)
		ss.run(ch.stream)
	}, nil
}

// optionOf returns the first option of a type, and whether there is one.
func optionOf[O grpc.CallOption](opts []grpc.CallOption) (option O, found bool) {
	for _, o := range opts {
		if option, found = o.(O); found {
			break
		}
	}
	return option, found
}

// queueDepth is how many messages of a stream may be queued per direction.
const queueDepth = 16

// queueFor returns the queue depth of a direction.
func queueFor(streams bool) int {
	if streams {
		return queueDepth
	}
	return 1
}

// clientStream is the caller's end of a call.
type clientStream struct {
	call    *call
	desc    *grpc.StreamDesc
	ctx     context.Context
	cancel  context.CancelCauseFunc // of ctx
	unwatch func() bool             // stops waiting for the end of the caller's context

	closeSent atomic.Bool
	received  bool // used only by the goroutine that calls RecvMsg
}

var _ grpc.ClientStream = (*clientStream)(nil)

func newClientStream(caller context.Context, c *call, desc *grpc.StreamDesc) *clientStream {
	cs := &clientStream{call: c, desc: desc}
	cs.ctx, cs.cancel = context.WithCancelCause(caller)
	cs.unwatch = context.AfterFunc(caller, func() { cs.callerEnded(caller) })
	return cs
}

// callerEnded ends the call because the caller's context has ended. It runs in
// its own goroutine, perhaps before newClientStream has returned, and must not
// use unwatch.
func (cs *clientStream) callerEnded(caller context.Context) {
	err := caller.Err()
	cause := fmt.Errorf("%w: %w", ErrCallerGone, context.Cause(caller))
	if _, ok := caller.Deadline(); ok && err == context.DeadlineExceeded {
		cause = nil
	}
	cs.settle(status.FromContextError(err).Err(), cause)
}

// abort ends the call because the channel is being closed.
func (cs *clientStream) abort() { cs.finish(errUnavailable, ErrClosed) }

// fail ends the call because of an error on the client's side, or because the
// client has received its end.
func (cs *clientStream) fail(err error) {
	if err == nil || err == io.EOF {
		cs.finish(nil, nil)
		return
	}
	cs.finish(err, fmt.Errorf("%w: %w", ErrCallerGone, err))
}

func (cs *clientStream) finish(err, cause error) {
	cs.unwatch()
	cs.settle(err, cause)
}

// settle ends the call if the handler has not.
func (cs *clientStream) settle(err, cause error) {
	if err != nil {
		cs.call.endByClient(status.Convert(err), cause)
	}
	cs.cancel(err)
}

func (cs *clientStream) Context() context.Context { return cs.ctx }

// Header blocks until the handler has sent its header, its first message or its status,
// or the call has ended. It returns nil if there is no header; RecvMsg returns the status.
// The error is always nil.
func (cs *clientStream) Header() (metadata.MD, error) { return cs.call.awaitHeader(), nil }

// Trailer returns the handler's trailer, once RecvMsg has returned an error, or the
// response of a call with a single one.
func (cs *clientStream) Trailer() metadata.MD { return cs.call.receivedTrailer() }

// CloseSend tells the handler that no more messages come. It never fails.
func (cs *clientStream) CloseSend() error {
	if !cs.closeSent.Swap(true) {
		close(cs.call.halfClosed)
	}
	return nil
}

// SendMsg passes m to the handler; it blocks while the queue is full. It returns
// io.EOF if the call has ended: RecvMsg returns the status.
func (cs *clientStream) SendMsg(m any) error {
	if cs.closeSent.Load() {
		err := status.Error(codes.Internal, "SendMsg called after CloseSend")
		cs.fail(err)
		return err
	}
	msg, err := toSend(m)
	if err != nil {
		cs.fail(err)
		return err
	}
	sent := cs.call.send(cs.call.requests, msg)
	if !cs.desc.ClientStreams {
		return cs.CloseSend() // generated code gets the status from RecvMsg
	}
	if !sent {
		return io.EOF
	}
	return nil
}

// RecvMsg blocks for the handler's next message. It returns io.EOF when the call
// has ended with status OK and everything is received, otherwise a status.
func (cs *clientStream) RecvMsg(m any) error {
	err := cs.recv(m)
	if err == nil && !cs.desc.ServerStreams {
		err = cs.expectEnd()
	}
	if err != nil {
		cs.fail(err)
		return err
	}
	return nil
}

func (cs *clientStream) recv(m any) error {
	msg, err := cs.call.nextResponse()
	if err == io.EOF && !cs.desc.ServerStreams && !cs.received {
		return status.Error(codes.Internal, "cardinality violation: received no response message from non-server-streaming RPC")
	}
	if err != nil {
		return err
	}
	cs.received = true
	return receive(msg, m)
}

// expectEnd waits for the status after the only message. A nil error of RecvMsg
// on such a call means that the status is OK.
func (cs *clientStream) expectEnd() error {
	_, err := cs.call.nextResponse()
	switch err {
	case nil:
		return status.Error(codes.Internal, "cardinality violation: expected <EOF> for non server-streaming RPCs, but received another message")
	case io.EOF:
		cs.fail(io.EOF)
		return nil
	default:
		return err
	}
}
