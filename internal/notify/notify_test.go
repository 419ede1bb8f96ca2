package notify_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/execwire/execwire/internal/notify"
)

var isClosed = notify.IsClosed

func TestWait_ReturnsCauseOfContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	over := make(chan struct{})
	ended := errors.New("the test ends")
	cancel(ended)
	if err := notify.Wait(ctx, over); err != ended {
		t.Errorf("Wait = %v, want %v", err, ended)
	}
	close(over)
	if err := notify.Wait(t.Context(), over); err != nil {
		t.Errorf("Wait of a closed channel = %v", err)
	}
}

func TestSignal_MergesSets(t *testing.T) {
	s := notify.NewSignal()
	if isClosed(s.C()) {
		t.Error("a new signal is set")
	}
	s.Set()
	s.Set()
	if !isClosed(s.C()) {
		t.Error("Set has no effect")
	}
	if isClosed(s.C()) {
		t.Error("two calls of Set are received twice")
	}
}

func TestBroadcast_WakesAllWaiters(t *testing.T) {
	var b notify.Broadcast
	b.Notify()
	first, second := b.Wait(), b.Wait()
	if isClosed(first) || isClosed(second) {
		t.Error("a waiter is woken by an earlier Notify")
	}
	b.Notify()
	if !isClosed(first) || !isClosed(second) {
		t.Error("a waiter is not woken")
	}
	if isClosed(b.Wait()) {
		t.Error("a later waiter is woken")
	}
}

// A waiter that checks under the lock does not miss a change.
func TestBroadcast_LosesNoChange(t *testing.T) {
	var mu sync.Mutex
	var changed notify.Broadcast
	const changes = 1000
	n := 0
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			mu.Lock()
			defer mu.Unlock()
			for n < changes {
				wait := changed.Wait()
				mu.Unlock()
				<-wait
				mu.Lock()
			}
		})
	}
	for range changes {
		mu.Lock()
		n++
		changed.Notify()
		mu.Unlock()
	}
	wg.Wait()
}
