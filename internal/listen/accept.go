package listen

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/execwire/execwire/internal/backoff"
)

const (
	// firstAcceptPause and longestAcceptPause bound the pause after a failed accept.
	firstAcceptPause   = 5 * time.Millisecond
	longestAcceptPause = 500 * time.Millisecond
	// acceptReportInterval is how often a listener reports that accepts fail.
	acceptReportInterval = time.Minute
)

var errListenerClosed = errors.New("the listener is closed")

// retryingListener retries failed accepts until it is closed: a limit of the system
// that is reached, by this program or another one of its user, does not end the
// listener. A connection that the system accepted and could not hand over is lost.
type retryingListener struct {
	net.Listener
	failed func(error) // gets the error, at most once in acceptReportInterval
	close  func() error
	open   context.Context // ends with the first Close

	mu       sync.Mutex
	reported time.Time // guarded by mu
}

// retryAccepts returns inner with accepts that are retried. failed may be nil; it is
// called concurrently and must not block.
func retryAccepts(inner net.Listener, failed func(error)) net.Listener {
	if failed == nil {
		failed = func(error) {}
	}
	open, end := context.WithCancelCause(context.Background())
	return &retryingListener{Listener: inner, failed: failed, open: open, close: sync.OnceValue(func() error {
		end(errListenerClosed)
		return inner.Close()
	})}
}

// Accept waits for the next connection. Its only error is [net.ErrClosed], after Close.
func (l *retryingListener) Accept() (net.Conn, error) {
	pause := backoff.Backoff{First: firstAcceptPause, Most: longestAcceptPause}
	for {
		conn, err := l.Listener.Accept()
		if err == nil {
			return conn, nil
		}
		if !errors.Is(err, net.ErrClosed) {
			l.report(err)
			if pause.Wait(l.open, 0) {
				continue
			}
			err = fmt.Errorf("%w: %w", net.ErrClosed, err)
		}
		return nil, err
	}
}

// Close closes the listener and ends a pause of Accept. Closing again returns the same
// result.
func (l *retryingListener) Close() error { return l.close() }

// report passes err on, with what to do about it, unless one was passed on lately.
func (l *retryingListener) report(err error) {
	l.mu.Lock()
	due := l.reported.IsZero() || time.Since(l.reported) >= acceptReportInterval
	if due {
		l.reported = time.Now()
	}
	l.mu.Unlock()
	if !due {
		return
	}
	if fix := acceptFix(err); fix != "" {
		err = fmt.Errorf("%w; %s", err, fix)
	}
	l.failed(err)
}

// acceptFix returns what lets accepts succeed again; empty if that is unknown.
func acceptFix(err error) string {
	switch {
	case errors.Is(err, syscall.EMFILE):
		return "raise the limit of open files (RLIMIT_NOFILE), or lower connections_per_listener"
	case errors.Is(err, syscall.ENFILE):
		return "the system has no more open files: raise fs.file-max"
	case errors.Is(err, syscall.ENOSPC):
		return "a program of the same user holds all epoll watches: end it, or raise fs.epoll.max_user_watches"
	}
	return ""
}
