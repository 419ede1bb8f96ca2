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
	// closeTimeout bounds how long the daemon waits for what it has killed.
	closeTimeout = 10 * time.Second
	// flushTimeout is how long clients may take to receive the end of their
	// processes.
	flushTimeout = 5 * time.Second
	// returnTimeout is how long an owner that has lost its connection may take to
	// return for the end of a process that has closed.
	returnTimeout = 2 * time.Second
	// handlerTimeout is how long handlers may take to return once their clients
	// were cut off. They do at once, but for those that hang in the system.
	handlerTimeout = 2 * time.Second
	// leftTimeout is how long what handlers left behind may take to end: helpers
	// that do not end by themselves are ended by force.
	leftTimeout = handlerTimeout + sandbox.HelperPatience
)

var (
	// errFlush ends the wait for clients that do not receive it.
	errFlush = errors.New("clients did not receive the end of their processes in time")
	// errNotReturned ends the wait for owners that have lost their connection.
	errNotReturned = errors.New("owners have not returned for the end of their processes in time")
	// errHandlers ends the wait for handlers that do not return.
	errHandlers = fmt.Errorf("failed to wait for calls that hang in the system, perhaps on a file system that does not answer: gave up after %v, or %v where processes of this program make them", handlerTimeout, leftTimeout)
)

// endProcesses kills what runs and waits until it is gone.
func (d *Daemon) endProcesses() error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), closeTimeout,
		fmt.Errorf("processes were still there %v after they were killed", closeTimeout))
	defer cancel()
	return d.sessions.Close(ctx)
}

// closeServices lets callers inside this program receive the end of what they
// were told, then cuts off those that do not, and waits for what handlers left
// behind.
func (d *Daemon) closeServices() error {
	d.server.EndWatches()
	flush, cancel := context.WithTimeoutCause(context.Background(), flushTimeout, errFlush)
	defer cancel()
	if err := d.channel.Shutdown(flush); err != nil {
		d.opts.Logger.Warn("cut callers off", "reason", err.Error())
	}
	done := begin(func() {
		d.channel.Close()
		d.server.Close()
		d.sandboxes.Close()
	})
	if !within(leftTimeout, done) {
		return errHandlers
	}
	return nil
}

// stopServer lets handlers send what they have within flush, then cuts off
// clients that do not receive it. If handlers do not return even so it leaves
// them behind, and the server's Serve with them.
func stopServer(s *grpc.Server, flush, patience time.Duration) error {
	stopped := begin(s.GracefulStop)
	if within(flush, stopped) {
		return nil
	}
	begin(s.Stop) // waits for handlers, too
	if !within(patience, stopped) {
		return errHandlers
	}
	return nil
}

// begin runs f, which may never return, and closes done when it does.
func begin(f func()) (done <-chan struct{}) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f()
	}()
	return ended
}

// within tells whether done is closed before patience is over.
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
