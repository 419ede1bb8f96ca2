package inproc_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
)

// queueDepth is how many messages a stream may have queued per direction.
const queueDepth = 16

// A slow reader blocks the sender once the queue is full.
func TestFlow_SlowClient_BlocksHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent atomic.Int64
		ch := serve(t, &stub{stream: func(ss grpc.ServerStream) error {
			for ss.SendMsg(txt("m")) == nil {
				sent.Add(1)
			}
			return nil
		}})
		cs := open(t, t.Context(), ch, serverMethod)
		synctest.Wait()
		if got := sent.Load(); got != queueDepth {
			t.Errorf("%d messages sent before any was received, want %d", got, queueDepth)
		}
		recv(cs)
		recv(cs)
		synctest.Wait()
		if got := sent.Load(); got != queueDepth+2 {
			t.Errorf("%d messages sent after two were received, want %d", got, queueDepth+2)
		}
	})
}

func TestFlow_SlowHandler_BlocksClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		step := make(chan struct{})
		ch := serve(t, &stub{stream: func(ss grpc.ServerStream) error {
			for range step {
				recv(ss)
			}
			return nil
		}})
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
		if got := sent.Load(); got != queueDepth {
			t.Errorf("%d messages sent before any was received, want %d", got, queueDepth)
		}
		step <- struct{}{}
		synctest.Wait()
		if got := sent.Load(); got != queueDepth+1 {
			t.Errorf("%d messages sent after one was received, want %d", got, queueDepth+1)
		}
		close(step) // the handler returns, and with it the blocked SendMsg
		<-done
	})
}
