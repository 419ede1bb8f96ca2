package fileworker

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

// Windows and buffers of the gRPC connection. They bound the memory that unread messages occupy at either end.
const (
	streamWindow     = 512 << 10
	connectionWindow = 4 << 20
	bufferSize       = 64 << 10
)

// errStartTimeout is the cause if a worker does not answer in time after its start.
var errStartTimeout = errors.New("the worker took too long to come up")

// startWorker starts a worker and waits until it answers. If it does not answer, startWorker returns the process, which has
// ended, with the error.
func startWorker(ctx context.Context, start Start, messageBytes int) (*sandbox.Worker, *grpc.ClientConn, error) {
	process, err := start(ctx)
	if err != nil {
		return nil, nil, err
	}
	conn, err := connect(ctx, process.Output(), messageBytes)
	if err != nil {
		process.Kill()
		process.Close()
		return process, nil, err
	}
	return process, conn, nil
}

// connect returns a client of a worker that has answered.
func connect(ctx context.Context, socket net.Conn, messageBytes int) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("passthrough:///file-worker",
		grpc.WithContextDialer(dialOnce(socket)),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUnaryInterceptor(traceUnary), grpc.WithStreamInterceptor(traceStream),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(messageBytes), grpc.MaxCallSendMsgSize(messageBytes)),
		grpc.WithStaticStreamWindowSize(streamWindow), grpc.WithStaticConnWindowSize(connectionWindow),
		grpc.WithReadBufferSize(bufferSize), grpc.WithWriteBufferSize(bufferSize),
		grpc.WithIdleTimeout(0), grpc.WithDisableRetry(), grpc.WithDisableServiceConfig())
	if err != nil {
		return nil, err
	}
	if err := awaitReady(ctx, conn); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// startError returns the error for a worker that did not come up.
func startError(ctx context.Context, process *sandbox.Worker, err error) error {
	if cause := context.Cause(ctx); errors.Is(cause, errUnneeded) {
		return ErrClosed
	} else if cause != nil {
		err = cause
	}
	if process == nil && !errors.Is(err, errStartTimeout) {
		return err
	}
	if process != nil && process.StderrTail() != "" {
		err = fmt.Errorf("%w; stderr: %q", err, process.StderrTail())
	}
	return &sandbox.Error{Kind: sandbox.NotStarted, Err: err}
}

// dialOnce returns a dialer whose first call returns conn, and whose later calls fail.
func dialOnce(conn net.Conn) func(context.Context, string) (net.Conn, error) {
	sockets := make(chan net.Conn, 1)
	sockets <- conn
	close(sockets)
	return func(context.Context, string) (net.Conn, error) {
		if only := <-sockets; only != nil {
			return only, nil
		}
		return nil, errors.New("the worker has ended")
	}
}

// awaitReady waits until the worker has answered for the first time.
func awaitReady(ctx context.Context, conn *grpc.ClientConn) error {
	conn.Connect()
	for {
		state := conn.GetState()
		switch state {
		case connectivity.Ready:
			return nil
		case connectivity.TransientFailure, connectivity.Shutdown:
			return errors.New("the worker ended before it answered")
		}
		if !conn.WaitForStateChange(ctx, state) {
			return context.Cause(ctx)
		}
	}
}

// Serve serves a worker's two connections, which are Unix sockets, until the other end closes descriptors: gRPC on rpc, and
// what [Lease.ShareDescriptor] sends on descriptors. Each descriptor is passed to adopt, which owns it from then on and must
// not block. Only the server has the other ends, so calls are not authenticated. Serve waits for the handlers.
func Serve(descriptors, rpc net.Conn, messageBytes int, adopt func(fd int), register func(grpc.ServiceRegistrar), options ...grpc.ServerOption) {
	s := grpc.NewServer(append(options,
		grpc.MaxRecvMsgSize(messageBytes), grpc.WaitForHandlers(true), grpc.NumStreamWorkers(1),
		grpc.StaticStreamWindowSize(streamWindow), grpc.StaticConnWindowSize(connectionWindow),
		grpc.ReadBufferSize(bufferSize), grpc.WriteBufferSize(bufferSize))...)
	register(s)
	l := &listener{conns: make(chan net.Conn, 1)}
	l.conns <- rpc
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(l) }) // the error is that the listener is closed
	receiveDescriptors(descriptors.(*net.UnixConn), adopt)
	s.Stop()
	serving.Wait()
	_ = descriptors.Close()
}

// listener accepts the connections in the channel, until it is closed.
type listener struct {
	conns chan net.Conn
	once  sync.Once
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	if conn, ok := <-l.conns; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.once.Do(func() { close(l.conns) })
	return nil
}

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return new(net.UnixAddr) }
