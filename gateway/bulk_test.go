package gateway

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/execwire/execwire/internal/wsconn"
)

// entering has n answers enter, and returns what counts those that have, and
// has one of them leave.
func entering(t *testing.T, b *bulk, n int) (entered func() int, leave func()) {
	t.Helper()
	leaves := make(chan func(), n)
	for range n {
		go func() {
			if leave, failed := b.enter(t.Context()); failed == nil {
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
		budget := wsconn.NewBudget(3 * bulkBytes)
		greedy, late := &bulk{share: budget.Share("p", nil)}, &bulk{share: budget.Share("p", nil)}
		ofGreedy, leaveGreedy := entering(t, greedy, 2*maxBulk)
		if got := ofGreedy(); got != 4 {
			t.Errorf("%d answers are prepared, want one and three of the total", got)
		}
		ofLate, leaveLate := entering(t, late, 3)
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
		for range 2*maxBulk - 1 {
			leaveGreedy()
		}
		leaveLate()
		leaveLate()
		if !budget.Share("p", nil).Hold(3 * bulkBytes) {
			t.Error("answers that were said take of the total")
		}
	})
}

func TestLargeAnswersOfAConnectionAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		entered, leave := entering(t, new(bulk), 3*maxBulk)
		if got := entered(); got != maxBulk {
			t.Errorf("%d answers are prepared, want %d", got, maxBulk)
		}
		for range 3 * maxBulk {
			leave()
		}
	})
}

// Whoever gives up waiting keeps no place, and a connection that ended nothing
// of the total.
func TestWaitingForALargeAnswerIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget := wsconn.NewBudget(maxBulk * bulkBytes)
		b := &bulk{share: budget.Share("p", nil)}
		entered, leave := entering(t, b, maxBulk)
		if got := entered(); got != maxBulk {
			t.Fatalf("%d answers are prepared", got)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("the connection has ended"))
		if _, failed := b.enter(ctx); failed == nil {
			t.Error("an answer is prepared beyond the bound")
		}
		leave()
		if leaveNow, failed := b.enter(t.Context()); failed != nil {
			t.Errorf("a place is lost: %v", failed)
		} else {
			leaveNow()
		}
		b.end()
		if !budget.Share("p", nil).Hold(maxBulk * bulkBytes) {
			t.Error("a connection that has ended takes of the total")
		}
		for range maxBulk - 1 {
			leave() // which is too late to matter
		}
	})
}
