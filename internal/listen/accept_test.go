package listen_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/execwire/execwire/internal/listen"
)

// failingListener fails with each of the errors, and then accepts or is closed.
type failingListener struct {
	mu     sync.Mutex
	errs   []error // guarded by mu
	closed chan struct{}
	conns  chan net.Conn
}

func newFailingListener(errs ...error) *failingListener {
	return &failingListener{errs: errs, closed: make(chan struct{}), conns: make(chan net.Conn, 1)}
}

func (l *failingListener) Accept() (net.Conn, error) {
	l.mu.Lock()
	if len(l.errs) > 0 {
		err := l.errs[0]
		l.errs = l.errs[1:]
		l.mu.Unlock()
		return nil, err
	}
	l.mu.Unlock()
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed:
		return nil, &net.OpError{Op: "accept", Err: net.ErrClosed}
	}
}

func (l *failingListener) Close() error   { close(l.closed); return nil }
func (l *failingListener) Addr() net.Addr { return &net.TCPAddr{} }

func acceptError(errno syscall.Errno) error {
	return &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", errno)}
}

// ENOSPC: the poller cannot watch the connection.
func TestAccept_AnyErrorButClosed_IsRetried(t *testing.T) {
	for _, errno := range []syscall.Errno{
		syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ENOSPC, syscall.EPERM, syscall.EPROTO, syscall.EINVAL,
	} {
		t.Run(errno.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner := newFailingListener(acceptError(errno), acceptError(errno), acceptError(errno))
				lis := listen.RetryAccepts(inner, nil)
				want, other := net.Pipe()
				defer func() { _, _ = want.Close(), other.Close() }()
				inner.conns <- want
				if got, err := lis.Accept(); got != want || err != nil {
					t.Fatalf("Accept = %v, %v, want the connection after the errors", got, err)
				}
				if err := lis.Close(); err != nil {
					t.Fatal(err)
				}
				if _, err := lis.Accept(); !errors.Is(err, net.ErrClosed) {
					t.Errorf("Accept after Close = %v, want net.ErrClosed", err)
				}
			})
		})
	}
}

// An hour of failures is reported about sixty times, without a busy loop.
func TestAccept_RepeatedFailures_AreReportedOncePerMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hour = 100_000 // more failures than there are in an hour
		errs := make([]error, hour)
		for i := range errs {
			errs[i] = acceptError(syscall.ENOSPC)
		}
		inner := newFailingListener(errs...)
		var reports []error
		lis := listen.RetryAccepts(inner, func(err error) { reports = append(reports, err) })
		var accepting sync.WaitGroup
		accepting.Go(func() {
			if _, err := lis.Accept(); !errors.Is(err, net.ErrClosed) {
				t.Errorf("Accept = %v, want net.ErrClosed", err)
			}
		})
		time.Sleep(time.Hour)
		_ = lis.Close() // ends the pause
		accepting.Wait()
		if n := len(reports); n < 50 || n > 61 {
			t.Errorf("%d reports in an hour, want one a minute", n)
		}
		if text := fmt.Sprint(reports[0]); !strings.Contains(text, "fs.epoll.max_user_watches") {
			t.Errorf("the report %q does not name the setting", text)
		}
		if left := len(inner.errs); left < hour/2 {
			t.Errorf("%d accepts in an hour, want pauses between them", hour-left)
		}
	})
}
