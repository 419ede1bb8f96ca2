package fileworker

import (
	"bufio"
	"context"
	"errors"
	"net"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/execwire/execwire/internal/sandbox"
	"github.com/execwire/execwire/internal/tracing"
)

// callConns is how many connections for unary calls a worker has at most.
const callConns = 4

// client makes calls to a worker. A unary call has a connection to itself: its goroutine writes
// the request and reads the response. By gRPC, two more goroutines at each end take part in it,
// which takes 60 µs more. Streams go by gRPC, and so do further calls at the same time, and those to a worker that has no
// descriptor left.
type client struct {
	*grpc.ClientConn
	descriptors  net.Conn       // see receiveDescriptors
	messageBytes int            // of the largest response
	idle         chan *callConn // connections that no call uses; nil stands for one that is not connected

	ctx context.Context // ends with Close
	end context.CancelCauseFunc
}

func newClient(conn *grpc.ClientConn, descriptors net.Conn, messageBytes int) *client {
	c := &client{ClientConn: conn, descriptors: descriptors, messageBytes: messageBytes, idle: make(chan *callConn, callConns)}
	c.ctx, c.end = context.WithCancelCause(context.Background())
	for range callConns {
		c.idle <- nil
	}
	return c
}

// Close ends all calls.
func (c *client) Close() {
	c.end(errWorkerEnded)
	_ = c.ClientConn.Close()
}

// errUnanswered is the error of a call whose connection ended before the response. A worker that still runs has not made the
// call: it ends a connection only if it cannot have its descriptor.
var errUnanswered = errors.New("the connection ended before the response")

// Invoke implements grpc.ClientConnInterface. No option has an effect.
func (c *client) Invoke(ctx context.Context, method string, request, response any, _ ...grpc.CallOption) (err error) {
	if ctx.Err() != nil {
		return status.FromContextError(ctx.Err()).Err()
	}
	span := tracing.FromContext(ctx).Child(SpanName, tracing.Client, time.Now())
	defer func() { span.End(err != nil) }()
	select {
	case conn := <-c.idle:
		if conn == nil {
			conn = c.dial()
		}
		if conn == nil {
			c.idle <- nil
			break
		}
		broken, err := conn.call(ctx, method, request.(proto.Message), response.(proto.Message))
		if broken {
			conn.forget()
			_ = conn.Close()
			conn = nil
		}
		c.idle <- conn
		switch {
		case !errors.Is(err, errUnanswered):
			return err
		case c.ctx.Err() != nil: // Close ended the connection: the worker may be making the call
			return status.Error(codes.Unavailable, errWorkerEnded.Error())
		}
	default:
	}
	err = c.ClientConn.Invoke(ctx, method, request, response)
	if status.Code(err) == codes.Canceled && c.ctx.Err() != nil && ctx.Err() == nil { // by Close
		return status.Error(codes.Unavailable, errWorkerEnded.Error())
	}
	return err
}

// dial returns a new connection for unary calls, or nil if there can be none now. It does not block.
func (c *client) dial() *callConn {
	conn, theirs, err := sandbox.SocketPair()
	if err != nil {
		return nil
	}
	defer unix.Close(theirs)
	if err := offerDescriptor(c.descriptors, theirs); err != nil {
		_ = conn.Close()
		return nil
	}
	forget := context.AfterFunc(c.ctx, func() { _ = conn.Close() })
	return &callConn{Conn: conn, reader: bufio.NewReader(conn), messageBytes: c.messageBytes, forget: forget}
}

// callConn is a connection for unary calls, one after the other.
type callConn struct {
	net.Conn
	reader       *bufio.Reader
	messageBytes int
	forget       func() bool // to be called before it is closed
}

// call makes a unary call. If ctx ends first, that closes the connection, which cancels the call. A broken connection cannot be
// used again.
func (c *callConn) call(ctx context.Context, method string, request, response proto.Message) (broken bool, err error) {
	frame, err := encodeRequest(ctx, method, request)
	if err != nil {
		return false, status.Error(codes.Internal, err.Error())
	}
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	_, err = c.Write(frame)
	if err == nil {
		frame, err = readFrame(c.reader, c.messageBytes)
	}
	switch {
	case !stop():
		return true, status.FromContextError(ctx.Err()).Err()
	case errors.Is(err, errTooLarge):
		return true, status.Error(codes.ResourceExhausted, err.Error())
	case err != nil:
		return true, errUnanswered
	}
	return decodeResponse(frame, response)
}
