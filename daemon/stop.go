package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"

	"github.com/execwire/execwire/internal/sandbox"
)

const (
	// closeTimeout bounds the wait for killed processes.
	closeTimeout = 10 * time.Second
	// flushTimeout is how long clients may take to receive the end of their
	// processes.
	flushTimeout = 5 * time.Second
	// returnTimeout is how long an owner that has lost its connection may take to
	// return for the end of a closed process.
	returnTimeout = 2 * time.Second
	// handlerTimeout is how long handlers may take to return once their clients are
	// disconnected. They return at once, unless they hang in the system.
	handlerTimeout = 2 * time.Second
	// cleanupTimeout is how long the rest of the handlers' work may take to end;
	// workers that do not end by themselves are killed.
	cleanupTimeout = handlerTimeout + sandbox.WorkerStopTimeout
)

var (
	// errFlush ends the wait for clients that do not receive it.
	errFlush = errors.New("clients did not receive the end of their processes in time")
	// errNotReturned ends the wait for owners that have lost their connection.
	errNotReturned = errors.New("owners have not returned for the end of their processes in time")
	// errHandlers ends the wait for handlers that do not return.
	errHandlers = fmt.Errorf("failed to wait for calls that hang in the system, perhaps on a file system that does not answer: gave up after %v, or %v where processes of this program make them", handlerTimeout, cleanupTimeout)
)

// endProcesses kills all processes and waits until they are gone.
func (d *Daemon) endProcesses() error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), closeTimeout,
		fmt.Errorf("processes were still there %v after they were killed", closeTimeout))
	defer cancel()
	return d.sessions.Close(ctx)
}

// closeServices lets callers inside this program receive the rest of their answers,
// then cancels their calls, and waits for what handlers left behind.
func (d *Daemon) closeServices() error {
	d.server.EndWatches()
	flush, cancel := context.WithTimeoutCause(context.Background(), flushTimeout, errFlush)
	defer cancel()
	if err := d.channel.Shutdown(flush); err != nil {
		d.opts.Logger.Warn("cancelled calls that did not end", "reason", err.Error())
	}
	done := runAsync(func() {
		d.channel.Close()
		d.server.Close()
		d.sandboxes.Close()
		d.recordings.Close()
		closeAudit(d.audit)
		d.history.close()
		d.tracer.Close() // last: it sends what the others recorded
	})
	if !within(cleanupTimeout, done) {
		return errHandlers
	}
	return nil
}

// stopServer lets handlers send the rest of their answers within flush, then
// disconnects clients. If handlers still do not return, it leaves them behind, and
// the server's Serve with them.
func stopServer(s *grpc.Server, flush, patience time.Duration) error {
	stopped := runAsync(s.GracefulStop)
	if within(flush, stopped) {
		return nil
	}
	runAsync(s.Stop) // also waits for handlers
	if !within(patience, stopped) {
		return errHandlers
	}
	return nil
}

// runAsync runs f, which may never return, and closes done when it does.
func runAsync(f func()) (done <-chan struct{}) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f()
	}()
	return ended
}

// within reports whether done is closed before patience is over.
func within(patience time.Duration, done <-chan struct{}) bool {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}
