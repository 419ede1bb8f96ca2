package inproc_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"

	"github.com/execwire/execwire/internal/inproc"
)

// The queue is the only bound on what a slow reader makes the sender hold.
func TestASlowReaderPacesTheHandler(t *testing.T) {
	for _, tc := range []struct {
		name string
		opts []inproc.Option
		want int64
	}{
		{"default", nil, 16},
		{"three", []inproc.Option{inproc.WithQueueDepth(3)}, 3},
		{"at least one", []inproc.Option{inproc.WithQueueDepth(0)}, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var sent atomic.Int64
				ch := serve(t, &stub{stream: func(ss grpc.ServerStream) error {
					for ss.SendMsg(txt("m")) == nil {
						sent.Add(1)
					}
					return nil
				}}, tc.opts...)
				cs := open(t, t.Context(), ch, serverMethod)
				synctest.Wait()
				if got := sent.Load(); got != tc.want {
					t.Errorf("%d messages sent before any was received, want %d", got, tc.want)
				}
				recv(cs)
				recv(cs)
				synctest.Wait()
				if got := sent.Load(); got != tc.want+2 {
					t.Errorf("%d messages sent after two were received, want %d", got, tc.want+2)
				}
			})
		})
	}
}

func TestASlowHandlerPacesTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		step := make(chan struct{})
		ch := serve(t, &stub{stream: func(ss grpc.ServerStream) error {
			for range step {
				recv(ss)
			}
			return nil
		}}, inproc.WithQueueDepth(2))
		cs := open(t, t.Context(), ch, clientMethod)
		var sent atomic.Int64
		done := make(chan struct{})
		go func() {
			defer close(done)
			for cs.SendMsg(txt("m")) == nil {
				sent.Add(1)
			}
		}()
		synctest.Wait()
		if got := sent.Load(); got != 2 {
			t.Errorf("%d messages sent before any was received, want 2", got)
		}
		step <- struct{}{}
		synctest.Wait()
		if got := sent.Load(); got != 3 {
			t.Errorf("%d messages sent after one was received, want 3", got)
		}
		close(step) // the handler returns, and the blocked SendMsg with it
		<-done
	})
}
