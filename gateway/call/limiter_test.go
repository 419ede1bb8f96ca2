package call

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

// entering has n answers enter, and returns what counts those that have, and
// has one of them leave.
func entering(ctx context.Context, b *Limiter, n int) (entered func() int, leave func()) {
	leaves := make(chan func(), n)
	for range n {
		go func() {
			if leave, failed := b.Acquire(ctx); failed == nil {
				leaves <- leave
			}
		}()
	}
	return func() int { synctest.Wait(); return len(leaves) }, func() { (<-leaves)() }
}

// Large answers of all connections are few together, and each connection gets
// one nevertheless.
func TestLargeAnswersOfAllConnectionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		total := NewShared(3 * largeBytes)
		greedy, late := NewLimiter(total), NewLimiter(total)
		ofGreedy, leaveGreedy := entering(t.Context(), greedy, 2*MaxLarge)
		if got := ofGreedy(); got != 4 {
			t.Errorf("%d answers are prepared, want one and three of the total", got)
		}
		ofLate, leaveLate := entering(t.Context(), late, 3)
		if got := ofLate(); got != 1 {
			t.Errorf("%d answers are prepared for a connection that comes late, want 1", got)
		}
		leaveLate() // whose next one comes without room for more
		if got := ofLate(); got != 1 {
			t.Errorf("%d answers are prepared after one was said, want 1", got)
		}
		// What the greedy one has said it may have again: it has asked before.
		leaveGreedy()
		if got := ofGreedy(); got != 4 {
			t.Errorf("%d answers are prepared, want 4", got)
		}
		for range 2*MaxLarge - 1 {
			leaveGreedy()
		}
		leaveLate()
		leaveLate()
		if len(total) != 0 {
			t.Error("answers that were said take of the total")
		}
	})
}

func TestLargeAnswersOfAConnectionAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		entered, leave := entering(t.Context(), NewLimiter(NewShared(MaxLarge*largeBytes)), 3*MaxLarge)
		if got := entered(); got != MaxLarge {
			t.Errorf("%d answers are prepared, want %d", got, MaxLarge)
		}
		for range 3 * MaxLarge {
			leave()
		}
	})
}

// Whoever gives up waiting keeps no place, and a connection that ended nothing
// of the total.
func TestWaitingForALargeAnswerIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		total := NewShared(MaxLarge * largeBytes)
		b := NewLimiter(total)
		connected, disconnect := context.WithCancelCause(t.Context())
		entered, leave := entering(connected, b, MaxLarge)
		if got := entered(); got != MaxLarge {
			t.Fatalf("%d answers are prepared", got)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("the request has ended"))
		if _, failed := b.Acquire(ctx); failed == nil {
			t.Error("an answer is prepared beyond the bound")
		}
		leave()
		if leaveNow, failed := b.Acquire(t.Context()); failed != nil {
			t.Errorf("a place is lost: %v", failed)
		} else {
			leaveNow()
		}
		disconnect(errors.New("the connection has ended"))
		if synctest.Wait(); len(total) != 0 {
			t.Error("a connection that has ended takes of the total")
		}
		for range MaxLarge - 1 {
			leave() // which is too late to matter
		}
	})
}
