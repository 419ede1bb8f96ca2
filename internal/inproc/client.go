package inproc

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

var unaryDesc = &grpc.StreamDesc{}

// Invoke makes a unary call and returns when the handler has answered or ctx
// has ended. Every error it returns is a status.
func (ch *Channel) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	return ch.invoke(ctx, ch.serverSees, method, args, reply, opts)
}

func (ch *Channel) invoke(ctx context.Context, as *peer.Peer, method string, args, reply any, opts []grpc.CallOption) error {
	cs, err := ch.newStream(ctx, as, unaryDesc, method, opts)
	if err != nil {
		return err
	}
	if err := cs.SendMsg(args); err != nil {
		return err
	}
	return cs.RecvMsg(reply)
}

// NewStream starts a streaming call; its handler starts at once. As with any
// gRPC connection the caller must see the call through: receive until an
// error, or cancel ctx.
func (ch *Channel) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return ch.open(ctx, ch.serverSees, desc, method, opts)
}

func (ch *Channel) open(ctx context.Context, as *peer.Peer, desc *grpc.StreamDesc, method string, opts []grpc.CallOption) (grpc.ClientStream, error) {
	cs, err := ch.newStream(ctx, as, desc, method, opts)
	if err != nil {
		return nil, err // not cs: a nil *clientStream would be a non-nil interface
	}
	return cs, nil
}

func (ch *Channel) newStream(ctx context.Context, as *peer.Peer, desc *grpc.StreamDesc, fullMethod string, opts []grpc.CallOption) (*clientStream, error) {
	md, err := outgoing(ctx, fullMethod, credentialsOf(opts))
	if err != nil {
		callOnFinish(opts, err)
		return nil, err
	}
	m := ch.lookup(fullMethod)
	c := newCall(ch.queueFor(m.clientStreams), ch.queueFor(m.serverStreams))
	c.handedBack, c.lent = promised(opts), lentBy(opts)
	ss := newServerStream(ctx, c, fullMethod, m, md, as)
	cs := newClientStream(ctx, c, desc, opts, ch.clientSees)
	if !ch.begin(cs) {
		cs.abort()
		return nil, errUnavailable
	}
	ch.workers.run(func() {
		defer ch.forget(cs)
		ss.run(ch.stream)
	})
	return cs, nil
}

// queueFor says how deep the queue of a direction is.
func (ch *Channel) queueFor(streams bool) int {
	if streams {
		return ch.depth
	}
	return 1
}

// clientStream is the caller's end of a call.
type clientStream struct {
	call    *call
	desc    *grpc.StreamDesc
	opts    []grpc.CallOption
	ctx     context.Context
	cancel  context.CancelCauseFunc // of ctx
	unwatch func() bool             // stops waiting for the end of the caller's context
	settled sync.Once

	closeSent atomic.Bool
	received  bool // used only by the goroutine that calls RecvMsg
}

var _ grpc.ClientStream = (*clientStream)(nil)

func newClientStream(caller context.Context, c *call, desc *grpc.StreamDesc, opts []grpc.CallOption, to *peer.Peer) *clientStream {
	cs := &clientStream{call: c, desc: desc, opts: opts}
	cs.ctx, cs.cancel = context.WithCancelCause(peer.NewContext(caller, to))
	cs.unwatch = context.AfterFunc(caller, func() { cs.callerEnded(caller) })
	return cs
}

// callerEnded ends the call because the caller's context has ended. It runs on
// a goroutine of its own, perhaps before newClientStream has returned, and so
// must not use unwatch.
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

// fail ends the call because of an error met on the client's side, or because
// the client has seen its end.
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

// settle ends the call if the handler has not, and gives the caller what it
// asked for with options. Only the first call has an effect; others wait for it.
func (cs *clientStream) settle(err, cause error) {
	cs.settled.Do(func() {
		if err != nil {
			cs.call.endByClient(status.Convert(err), cause)
		}
		cs.fillOptions()
		callOnFinish(cs.opts, err)
		cs.cancel(err)
	})
}

func (cs *clientStream) Context() context.Context { return cs.ctx }

// Header waits for the header. It returns nil without an error if the call
// ended without one; RecvMsg then has the status.
func (cs *clientStream) Header() (metadata.MD, error) {
	<-cs.call.settled
	md, ok := cs.call.clientHeader()
	if ok {
		return md, nil
	}
	<-cs.call.done
	cs.fail(cs.call.status.Err())
	return nil, nil
}

// Trailer returns the trailer once RecvMsg has returned an error.
func (cs *clientStream) Trailer() metadata.MD { return cs.call.clientTrailer() }

// CloseSend tells the handler that no more messages come. It never fails.
func (cs *clientStream) CloseSend() error {
	if !cs.closeSent.Swap(true) {
		close(cs.call.halfClosed)
	}
	return nil
}

// SendMsg hands m to the handler; it waits while the queue is full. It returns
// io.EOF if the call has ended: RecvMsg has the status.
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
	sent := cs.call.sendRequest(msg) == nil
	if !cs.desc.ClientStreams {
		return cs.CloseSend() // generated code looks for the status in RecvMsg
	}
	if !sent {
		return io.EOF
	}
	return nil
}

// RecvMsg waits for the handler's next message. It returns io.EOF when the call
// has ended well and everything is received, and a status when it has not.
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

// expectEnd waits for the status that follows an only message. A nil error of
// RecvMsg on such a call means that the call has ended well.
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
