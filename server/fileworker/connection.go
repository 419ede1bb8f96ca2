package fileworker

import (
	"context"
	"errors"
	"fmt"
	"net"

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
func startWorker(ctx context.Context, start Start, messageBytes int) (*sandbox.Worker, *client, error) {
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
	return process, newClient(conn, process.Input(), messageBytes), nil
}

// connect returns a client of a worker that has answered.
func connect(ctx context.Context, socket net.Conn, messageBytes int) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("passthrough:///file-worker",
		grpc.WithContextDialer(dialOnce(socket)),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithStreamInterceptor(traceStream),
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
