package filehelper

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/execwire/execwire/internal/sandbox"
)

// Sizes of the connection. What is on the way of one stream, and of all, stays in memory here or there.
const (
	streamWindow     = 512 << 10
	connectionWindow = 4 << 20
	bufferSize       = 64 << 10
)

// errTooLong is why a helper is ended that does not come up.
var errTooLong = errors.New("the helper took too long to come up")

// begin starts a helper and waits until it answers. Of one that does not it returns the process, which has ended.
func begin(ctx context.Context, start Start, messageBytes int) (*sandbox.Helper, *link, error) {
	process, err := start(ctx)
	if err != nil {
		return nil, nil, err
	}
	streams, err := grpc.NewClient("passthrough:///file-helper",
		grpc.WithContextDialer(once(process.Output())),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(messageBytes), grpc.MaxCallSendMsgSize(messageBytes)),
		grpc.WithStaticStreamWindowSize(streamWindow), grpc.WithStaticConnWindowSize(connectionWindow),
		grpc.WithReadBufferSize(bufferSize), grpc.WithWriteBufferSize(bufferSize),
		grpc.WithIdleTimeout(0), grpc.WithDisableRetry(), grpc.WithDisableServiceConfig())
	var conn *link
	if err == nil {
		if err = awaitReady(ctx, streams); err == nil {
			conn, err = newLink(process.Input(), streams, messageBytes)
		}
		if err != nil {
			_ = streams.Close()
		}
	}
	if err != nil {
		process.Kill()
		process.Close()
		return process, nil, err
	}
	return process, conn, nil
}

// notStarted types why a helper has not come up.
func notStarted(ctx context.Context, process *sandbox.Helper, err error) error {
	if cause := context.Cause(ctx); errors.Is(cause, errGone) {
		return ErrClosed
	} else if cause != nil {
		err = cause
	}
	if process == nil && !errors.Is(err, errTooLong) {
		return err
	}
	if process != nil && process.Complaint() != "" {
		err = fmt.Errorf("%w; it said %q", err, process.Complaint())
	}
	return &sandbox.Error{Kind: sandbox.NotStarted, Err: err}
}

// once dials a connection that is there. There is no second.
func once(conn net.Conn) func(context.Context, string) (net.Conn, error) {
	var mu sync.Mutex
	return func(context.Context, string) (net.Conn, error) {
		mu.Lock()
		defer mu.Unlock()
		if conn == nil {
			return nil, errors.New("the helper has ended")
		}
		only := conn
		conn = nil
		return only, nil
	}
}

// awaitReady waits until the helper has answered for the first time.
func awaitReady(ctx context.Context, conn *grpc.ClientConn) error {
	conn.Connect()
	for {
		state := conn.GetState()
		switch state {
		case connectivity.Ready:
			return nil
		case connectivity.TransientFailure, connectivity.Shutdown:
			return errors.New("the helper ended before it answered")
		}
		if !conn.WaitForStateChange(ctx, state) {
			return context.Cause(ctx)
		}
	}
}

// Serve serves the two connections of a helper until the other end closes one: calls of one message each way, and
// streams. Without another end nobody can call, so there is nobody to authenticate. Descriptors of [Lease.Lend] are passed
// to lent, which takes them over and must not block. Handlers are waited for.
func Serve(calls, streams net.Conn, messageBytes int, lent func(fd int), register func(grpc.ServiceRegistrar),
	unary []grpc.UnaryServerInterceptor, stream []grpc.StreamServerInterceptor,
) error {
	a, err := newAnswerer(calls, messageBytes, lent, unary)
	if err != nil {
		return err
	}
	s := grpc.NewServer(grpc.ChainUnaryInterceptor(unary...), grpc.ChainStreamInterceptor(stream...),
		grpc.MaxRecvMsgSize(messageBytes), grpc.WaitForHandlers(true),
		grpc.StaticStreamWindowSize(streamWindow), grpc.StaticConnWindowSize(connectionWindow),
		grpc.ReadBufferSize(bufferSize), grpc.WriteBufferSize(bufferSize))
	register(registrar{s, a})
	l := &listener{conn: streams, closed: make(chan struct{})}
	var answering sync.WaitGroup
	answering.Go(func() {
		a.serve()
		_ = l.Close()
	})
	_ = s.Serve(l) // which always says that there is no more
	_ = calls.Close()
	s.Stop()
	answering.Wait()
	return nil
}

// listener accepts one connection, and ends with it.
type listener struct {
	accepted bool // used by who accepts
	conn     net.Conn
	closed   chan struct{}
	once     sync.Once
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	if !l.accepted {
		l.accepted = true
		return accepted{l.conn, l}, nil
	}
	<-l.closed
	return nil, net.ErrClosed
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return l.conn.LocalAddr() }

// accepted ends its listener when it is closed.
type accepted struct {
	net.Conn
	of *listener
}

// Close implements net.Conn.
func (a accepted) Close() error { return errors.Join(a.Conn.Close(), a.of.Close()) }
