package call

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

// acquireMany starts n goroutines that acquire. acquired counts those that have
// succeeded, release ends one of them.
func acquireMany(ctx context.Context, b *Limiter, n int) (acquired func() int, release func()) {
	releases := make(chan func(), n)
	for range n {
		go func() {
			if release, failed := b.Acquire(ctx); failed == nil {
				releases <- release
			}
		}()
	}
	return func() int { synctest.Wait(); return len(releases) }, func() { (<-releases)() }
}

func TestLimiter_Shared_BoundsAllConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		total := NewShared(3 * largeBytes)
		first, second := NewLimiter(total), NewLimiter(total)
		firstAcquired, firstRelease := acquireMany(t.Context(), first, 2*MaxLarge)
		if got := firstAcquired(); got != 4 {
			t.Errorf("%d responses hold a slot, want the reserved one and three shared ones", got)
		}
		secondAcquired, secondRelease := acquireMany(t.Context(), second, 3)
		if got := secondAcquired(); got != 1 {
			t.Errorf("%d responses of the second connection hold a slot, want 1", got)
		}
		secondRelease() // its next response gets the slot
		if got := secondAcquired(); got != 1 {
			t.Errorf("%d responses of the second connection hold a slot after one was released, want 1", got)
		}
		// The first connection waits for longer, so it gets the slot that it releases.
		firstRelease()
		if got := firstAcquired(); got != 4 {
			t.Errorf("%d responses of the first connection hold a slot, want 4", got)
		}
		for range 2*MaxLarge - 1 {
			firstRelease()
		}
		secondRelease()
		secondRelease()
		if len(total) != 0 {
			t.Error("released responses still hold shared slots")
		}
	})
}

func TestLimiter_BoundsLargeResponsesOfConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		acquired, release := acquireMany(t.Context(), NewLimiter(NewShared(MaxLarge*largeBytes)), 3*MaxLarge)
		if got := acquired(); got != MaxLarge {
			t.Errorf("%d responses hold a slot, want %d", got, MaxLarge)
		}
		for range 3 * MaxLarge {
			release()
		}
	})
}

// A cancelled wait keeps no slot, and a connection that has ended keeps no
// shared slot.
func TestLimiter_WaitCancelled_ReleasesSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		total := NewShared(MaxLarge * largeBytes)
		b := NewLimiter(total)
		connected, disconnect := context.WithCancelCause(t.Context())
		acquired, release := acquireMany(connected, b, MaxLarge)
		if got := acquired(); got != MaxLarge {
			t.Fatalf("%d responses hold a slot", got)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("the request has ended"))
		if _, failed := b.Acquire(ctx); failed == nil {
			t.Error("a slot was acquired above the limit")
		}
		release()
		if releaseNow, failed := b.Acquire(t.Context()); failed != nil {
			t.Errorf("a released slot cannot be acquired: %v", failed)
		} else {
			releaseNow()
		}
		disconnect(errors.New("the connection has ended"))
		if synctest.Wait(); len(total) != 0 {
			t.Error("a connection that has ended holds shared slots")
		}
		for range MaxLarge - 1 {
			release() // after the disconnect, without effect
		}
	})
}
