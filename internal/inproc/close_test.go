package inproc_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/execwire/execwire/internal/inproc"
)

func TestClose_EndsRunningCalls(t *testing.T) {
	causes := make(chan error, 1)
	ch := serve(t, until(causes))
	cs := open(t, guarded(t), ch, bidiMethod)
	ch.Close()
	if cause := <-causes; cause != inproc.ErrClosed || !errors.Is(cause, context.Canceled) {
		t.Errorf("the handler's cause = %v, want %v", cause, inproc.ErrClosed)
	}
	if err := cs.RecvMsg(new(text)); status.Code(err) != codes.Unavailable {
		t.Errorf("RecvMsg on a closed channel = %v, want Unavailable", err)
	}
	if cs.Context().Err() == nil {
		t.Error("the stream's context outlives the channel")
	}
	ch.Close() // further calls are allowed
}

func TestClose_LaterCallsFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ch := serve(t, &stub{})
		ch.Close()
		ctx, cancel := context.WithCancel(t.Context())
		if err := ch.Invoke(ctx, unaryMethod, txt(""), new(text)); status.Code(err) != codes.Unavailable {
			t.Errorf("Invoke = %v, want Unavailable", err)
		}
		if cs, err := ch.NewStream(ctx, &grpc.StreamDesc{}, serverMethod); status.Code(err) != codes.Unavailable || cs != nil {
			t.Errorf("NewStream = %v, %v, want Unavailable", cs, err)
		}
		cancel()
		synctest.Wait() // for goroutines that still watch the caller's context
	})
}

// Close waits for a handler that ignores its context, because what it uses may be
// released next.
func TestClose_WaitsForHandlers(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	ch := serve(t, &stub{unary: func(ctx context.Context, _ *text) (*text, error) {
		close(entered)
		<-release
		return txt(""), nil
	}})
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { _ = ch.Invoke(guarded(t), unaryMethod, txt(""), new(text)) })
	<-entered
	closed := make(chan struct{})
	wg.Go(func() { ch.Close(); close(closed) })
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("out of patience"))
	if err := ch.Shutdown(ctx); err == nil || !strings.Contains(err.Error(), "out of patience") {
		t.Errorf("Shutdown with a handler running = %v, want the cause of its context", err)
	}
	select {
	case <-closed:
		t.Error("Close returned while a handler was running")
	default:
	}
	close(release)
	wait(t, "end of Close", closed)
}

func TestShutdown_WaitsForCalls(t *testing.T) {
	e := &env{}
	ch := serve(t, echo(e))
	cs := open(t, guarded(t), ch, bidiMethod)
	var wg sync.WaitGroup
	var shutdown error
	done := make(chan struct{})
	wg.Go(func() { shutdown = ch.Shutdown(guarded(t)); close(done) })
	defer wg.Wait()
	for { // until the channel rejects calls
		if err := ch.Invoke(guarded(t), "/test.Stub/Other", txt(""), new(text)); status.Code(err) == codes.Unavailable {
			break
		}
	}
	if err := cs.SendMsg(txt("still")); err != nil {
		t.Fatal(err)
	}
	if got := recv(cs); got != `"re: still"` {
		t.Errorf("a running call during Shutdown got %s", got)
	}
	_ = cs.CloseSend()
	if got := recv(cs); got != "EOF" {
		t.Errorf("a running call ended during Shutdown with %s, want EOF", got)
	}
	wait(t, "end of Shutdown", done)
	if shutdown != nil {
		t.Errorf("Shutdown = %v, want nil", shutdown)
	}
}

// Concurrent calls, cancellations and Close, for the race detector and the leak
// check; every call must end in one of the allowed ways.
func TestClose_DuringCalls(t *testing.T) {
	for range 50 {
		ch := serve(t, echo(&env{}))
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				ctx, cancel := context.WithCancel(guarded(t))
				defer cancel()
				cs, err := ch.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, bidiMethod)
				for err == nil {
					if err = cs.SendMsg(txt("m")); err == nil {
						err = cs.RecvMsg(new(text))
					} else {
						err = cs.RecvMsg(new(text))
					}
				}
				if code := status.Code(err); code != codes.Unavailable {
					t.Errorf("a call amid Close ended with %v, want Unavailable", err)
				}
			})
		}
		ch.Close()
		wg.Wait()
	}
}

// WaitQuiet waits for running handlers and rejects none.
func TestWaitQuiet_WaitsForCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		ch := serve(t, &stub{unary: func(context.Context, *text) (*text, error) {
			<-release
			return txt(""), nil
		}})
		if err := ch.WaitQuiet(t.Context()); err != nil {
			t.Errorf("without a call: %v", err)
		}
		var calls sync.WaitGroup
		calls.Go(func() {
			if err := ch.Invoke(t.Context(), unaryMethod, txt(""), new(text)); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		ended, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("the test gives up")
		cancel(cause)
		if err := ch.WaitQuiet(ended); !errors.Is(err, cause) {
			t.Errorf("with a call: %v, want %v", err, cause)
		}
		var waits sync.WaitGroup
		waits.Go(func() {
			if err := ch.WaitQuiet(t.Context()); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		close(release)
		calls.Wait()
		waits.Wait()
		if err := ch.Invoke(t.Context(), unaryMethod, txt(""), new(text)); err != nil {
			t.Errorf("a later call: %v", err)
		}
	})
}
