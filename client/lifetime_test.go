package client

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// closerFunc is an io.Closer.
type closerFunc func() error

func (f closerFunc) Close() error { return f() }

// blockUntilEnd receives the first message, answers that the process runs, and waits
// for the stream to end.
func blockUntilEnd(stream serverStream) error {
	if err := sends(nil, started(0))(stream); err != nil {
		return err
	}
	<-stream.Context().Done()
	return stream.Context().Err()
}

func TestClose_FailsPendingAndLaterCalls(t *testing.T) {
	for name, scripts := range map[string][]script{
		"while it is connected":       {blockUntilEnd},
		"while it is reconnecting":    {sends(errCut, started(0))},
		"before it was ever answered": {func(stream serverStream) error { <-stream.Context().Done(); return nil }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, plain := newFake(t, scripts...)
				closed := 0
				c := NewOwning(plain.channel.ClientConnInterface, closerFunc(func() error { closed++; return nil }))
				ended := make(chan error)
				go func() {
					_, err := c.Run(t.Context(), RunOptions{Process: direct("x")})
					ended <- err
				}()
				synctest.Wait()
				before := time.Now()
				if err := c.Close(); err != nil {
					t.Error(err)
				}
				if err := <-ended; !errors.Is(err, ErrClosed) {
					t.Errorf("Run: %v", err)
				}
				if took := time.Since(before); took != 0 {
					t.Errorf("it took %v", took)
				}
				if _, err := c.Describe(t.Context()); !errors.Is(err, ErrClosed) {
					t.Errorf("Describe: %v", err)
				}
				if _, err := c.WithSandbox(Sandbox{}.Policy()).ReadFile(t.Context(), "/x"); !errors.Is(err, ErrClosed) {
					t.Errorf("ReadFile: %v", err)
				}
				if err := c.Close(); err != nil || closed != 1 {
					t.Errorf("closed %d times, %v", closed, err)
				}
			})
		})
	}
}

func TestClose_OfNew_DoesNothing(t *testing.T) {
	_, c := newFake(t, sends(nil, started(0), events(exited(1, 0), closed(2))))
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Run(t.Context(), RunOptions{Process: direct("x")}); err != nil {
		t.Error(err)
	}
}

// lostAfterSignal is a channel that is permanently lost after a signal.
type lostAfterSignal struct {
	grpc.ClientConnInterface
	gone chan struct{}
}

type launchEnded struct{}

func (launchEnded) Error() string              { return "the command ended with code 1" }
func (launchEnded) ConnectionGone() bool       { return true }
func (launchEnded) GRPCStatus() *status.Status { return status.New(codes.Unavailable, "gone") }

func (g lostAfterSignal) Invoke(context.Context, string, any, any, ...grpc.CallOption) error {
	return launchEnded{}
}

func (g lostAfterSignal) NewStream(ctx context.Context, d *grpc.StreamDesc, m string, o ...grpc.CallOption) (grpc.ClientStream, error) {
	stream, err := g.ClientConnInterface.NewStream(ctx, d, m, o...)
	return goneStream{stream, g.gone}, err
}

type goneStream struct {
	grpc.ClientStream
	gone chan struct{}
}

func (s goneStream) RecvMsg(m any) error {
	if err := s.ClientStream.RecvMsg(m); err != nil {
		return err
	}
	select {
	case <-s.gone:
		return launchEnded{}
	default:
		return nil
	}
}

func TestConnectionLostError_EndsEveryCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, plain := newFake(t, blockUntilEnd, func(stream serverStream) error {
			if err := sends(nil, started(0))(stream); err != nil {
				return err
			}
			return stream.Send(events(stdout(1, 0, "late")))
		})
		gone := make(chan struct{})
		c := New(lostAfterSignal{plain.channel.ClientConnInterface, gone})
		ended := make(chan error)
		go func() {
			_, err := c.Run(t.Context(), RunOptions{Process: direct("x")})
			ended <- err
		}()
		synctest.Wait()
		close(gone)
		for range 2 { // the call that detects it, and the pending one
			if _, err := c.Run(t.Context(), RunOptions{Process: direct("y")}); !isGone(err) {
				t.Errorf("Run: %v", err)
			}
		}
		err := <-ended
		var lost *LostError
		if !isGone(err) || !errors.As(err, &lost) || !lost.Started {
			t.Errorf("the run that was going on: %v", err)
		}
		if _, err := c.Processes().GetProcess(t.Context(), &execwirev1.GetProcessRequest{}); !isGone(FromRPC(err)) {
			t.Errorf("GetProcess: %v", err)
		}
	})
}

func isGone(err error) bool {
	var lost *ConnectionLostError
	return errors.As(err, &lost) && errors.As(err, new(launchEnded))
}

// unreachable is a channel that always fails with a transient error.
type unreachable struct{ grpc.ClientConnInterface }

func (unreachable) Invoke(context.Context, string, any, any, ...grpc.CallOption) error { return errCut }

func (unreachable) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, errCut
}

func TestClose_FailsCallsWaitingForConnection(t *testing.T) {
	for name, call := range map[string]func(context.Context, *Client) error{
		"Describe": func(ctx context.Context, c *Client) error { _, err := c.Describe(ctx); return err },
		"Stat":     func(ctx context.Context, c *Client) error { _, err := c.Stat(ctx, "/x"); return err },
		"ReadFile": func(ctx context.Context, c *Client) error { _, err := c.ReadFile(ctx, "/x"); return err },
		"Upload": func(ctx context.Context, c *Client) error {
			_, err := c.Upload(ctx, "/x", strings.NewReader("x"), UploadOptions{ID: "u"})
			return err
		},
		"Wait": func(ctx context.Context, c *Client) error {
			_, err := c.Wait(ctx, &execwirev1.WaitProcessRequest{ProcessId: "p"})
			return err
		},
		"Terminate": func(ctx context.Context, c *Client) error {
			_, err := c.Terminate(ctx, ProcessRef{ProcessID: "p"}, Termination{})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := NewOwning(unreachable{}, closerFunc(func() error { return nil }))
				ended := make(chan error)
				go func() { ended <- call(t.Context(), c) }()
				time.Sleep(10 * time.Second) // it retries
				synctest.Wait()
				select {
				case err := <-ended:
					t.Fatalf("it ended before: %v", err)
				default:
				}
				before := time.Now()
				_ = c.Close() // its closer returns nil
				if err := <-ended; !errors.Is(err, ErrClosed) || time.Since(before) != 0 {
					t.Errorf("got %v after %v", err, time.Since(before))
				}
			})
		})
	}
}

func TestClose_EndsSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, plain := newFakeSessions(t, untilDetached)
		c := NewOwning(plain.channel.ClientConnInterface, closerFunc(func() error { return nil }))
		session, err := c.AttachSession(t.Context(), SessionOptions{})
		if err != nil {
			t.Fatal(err)
		}
		_ = c.Close() // its closer returns nil
		if _, err := session.Next(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("got %v", err)
		}
	})
}
