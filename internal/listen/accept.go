package listen

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/execwire/execwire/internal/backoff"
)

const (
	// minAcceptPause and maxAcceptPause bound the pause after a failed accept.
	minAcceptPause = 5 * time.Millisecond
	maxAcceptPause = 500 * time.Millisecond
	// acceptReportInterval is the minimum time between reports of failed accepts.
	acceptReportInterval = time.Minute
)

var errListenerClosed = errors.New("the listener is closed")

// errPaused is the error of Accept while the listener is paused.
var errPaused = errors.New("the listener is paused")

// retryingListener retries failed accepts until it is closed: a system limit that
// is reached, by this process or others of its user, must not end the listener. A
// connection that was accepted but could not be returned is lost.
type retryingListener struct {
	net.Listener
	failed  func(error)     // called with the error, at most once per acceptReportInterval
	closing context.Context // ends with the first Close
	end     context.CancelCauseFunc
	paused  atomic.Bool // Accept fails with errPaused

	mu         sync.Mutex
	lastReport time.Time // guarded by mu
}

// retryAccepts returns inner with retried accepts. failed is called concurrently,
// must not block, and may be nil.
func retryAccepts(inner net.Listener, failed func(error)) *retryingListener {
	if failed == nil {
		failed = func(error) {}
	}
	open, end := context.WithCancelCause(context.Background())
	return &retryingListener{Listener: inner, failed: failed, closing: open, end: end}
}

// Accept waits for the next connection. Its only errors are [net.ErrClosed], after
// Close, and errPaused.
func (l *retryingListener) Accept() (net.Conn, error) {
	pause := backoff.Backoff{Min: minAcceptPause, Max: maxAcceptPause}
	for {
		conn, err := l.Listener.Accept()
		if err == nil {
			return conn, nil
		}
		if l.paused.Load() {
			return nil, errPaused
		}
		if !errors.Is(err, net.ErrClosed) {
			l.report(err)
			if pause.Wait(l.closing, 0) {
				continue
			}
			err = fmt.Errorf("%w: %w", net.ErrClosed, err)
		}
		return nil, err
	}
}

// pause makes Accept fail until resume; the kernel queues connections. It returns an
// error if the kind of listener cannot.
func (l *retryingListener) pause() error {
	l.paused.Store(true)
	return l.setDeadline(time.Unix(1, 0))
}

// resume ends pause.
func (l *retryingListener) resume() error {
	l.paused.Store(false)
	return l.setDeadline(time.Time{})
}

func (l *retryingListener) setDeadline(at time.Time) error {
	inner, ok := l.Listener.(interface{ SetDeadline(time.Time) error })
	if !ok {
		return fmt.Errorf("a listener of type %T cannot be paused", l.Listener)
	}
	return inner.SetDeadline(at)
}

// Close closes the listener and ends the delay before Accept tries again.
func (l *retryingListener) Close() error {
	l.end(errListenerClosed)
	return l.Listener.Close()
}

// report calls failed with err and its fix, rate-limited.
func (l *retryingListener) report(err error) {
	l.mu.Lock()
	due := l.lastReport.IsZero() || time.Since(l.lastReport) >= acceptReportInterval
	if due {
		l.lastReport = time.Now()
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

// acceptFix returns the fix for a failed accept; empty if unknown.
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
