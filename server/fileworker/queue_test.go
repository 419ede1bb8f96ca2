package fileworker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/execwire/execwire/internal/sandbox"
)

// queueTimeout is how long a test waits for an expected event.
const queueTimeout = 2 * time.Minute

var errCancelled = errors.New("the test cancelled the call")

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeoutCause(t.Context(), queueTimeout, errStartTimeout)
	t.Cleanup(cancel)
	return ctx
}

// queue is a pool whose workers report their start and then fail.
type queue struct {
	*Pool
	started chan startingWorker
}

// startingWorker is a worker that is starting.
type startingWorker struct {
	key  string
	fail chan struct{} // the start fails when it is closed
}

var errNever = errors.New("the start fails")

func newQueue(t *testing.T, options Options) *queue {
	q := &queue{Pool: NewPool(options), started: make(chan startingWorker, 100)}
	t.Cleanup(q.Close)
	return q
}

// use calls Set.Use in the background.
func (q *queue) use(ctx context.Context, s *Set, key string) <-chan error {
	failed := make(chan error, 1)
	go func() {
		_, err := s.Use(ctx, key, func(ctx context.Context) (*sandbox.Worker, error) {
			b := startingWorker{key, make(chan struct{})}
			q.started <- b
			select {
			case <-b.fail:
				return nil, errNever
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		})
		failed <- err
	}()
	return failed
}

// awaitWaiting waits until n calls wait for a worker.
func (q *queue) awaitWaiting(t *testing.T, n int) {
	t.Helper()
	for ctx := within(t); ; {
		q.mu.Lock()
		waiting := len(q.queue)
		q.mu.Unlock()
		if waiting == n {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("%d calls wait, want %d", waiting, n)
		}
	}
}

func TestUse_WaitingCalls_AreServedInOrder(t *testing.T) {
	q := newQueue(t, Options{PerPrincipal: 1, Total: 2, Idle: time.Minute, StartTimeout: time.Hour})
	mine, mineToo, yours := q.NewSet("me", func() {}), q.NewSet("me", func() {}), q.NewSet("you", func() {})
	ctx, cancel := context.WithCancelCause(within(t))
	first := q.use(ctx, mine, "first")
	begun := []startingWorker{<-q.started}
	var all []<-chan error
	for i := range 5 {
		s := mine
		if i%2 == 1 {
			s = mineToo
		}
		all = append(all, q.use(ctx, s, fmt.Sprint(i)))
		q.awaitWaiting(t, i+1)
	}
	other := q.use(ctx, yours, "yours") // another principal is below its limit
	begun = append(begun, <-q.started)
	gone, cancelGone := context.WithCancelCause(ctx)
	cancelled := q.use(gone, mine, "cancelled")
	q.awaitWaiting(t, 6)
	cancelGone(errCancelled)
	if err := <-cancelled; !errors.Is(err, errCancelled) {
		t.Errorf("the cancelled call fails with %v", err)
	}
	for _, b := range begun {
		close(b.fail)
	}
	if err := <-other; !errors.Is(err, errNever) {
		t.Error(err)
	}
	if err := <-first; !errors.Is(err, errNever) {
		t.Error(err)
	}
	var order []string
	for range all {
		begun = append(begun, <-q.started)
		if len(begun) < 7 {
			close(begun[len(begun)-1].fail)
		}
	}
	for _, b := range begun {
		order = append(order, b.key)
	}
	if want := []string{"first", "yours", "0", "1", "2", "3", "4"}; !slices.Equal(order, want) {
		t.Errorf("the order is %v, want %v", order, want)
	}
	cancel(errCancelled)
	for _, failed := range all {
		if err := <-failed; !errors.Is(err, errNever) && !errors.Is(err, errCancelled) {
			t.Error(err)
		}
	}
}

func TestUse_StartTimeout_BoundsWaiting(t *testing.T) {
	q := newQueue(t, Options{PerPrincipal: 1, Total: 1, Idle: time.Minute, StartTimeout: time.Millisecond})
	set, ctx := q.NewSet("me", func() {}), within(t)
	q.options.StartTimeout = time.Hour // for the first worker
	first := q.use(ctx, set, "first")
	<-q.started
	q.options.StartTimeout = time.Millisecond
	err := <-q.use(ctx, set, "second")
	if limit, is := errors.AsType[*LimitError](err); !is || limit.Limit != 1 || limit.Setting != "file_workers_per_principal" {
		t.Errorf("the second call fails with %v", err)
	}
	q.options.StartTimeout = time.Hour
	third := q.use(ctx, set, "third")
	q.awaitWaiting(t, 1)
	set.Close()
	for _, failed := range []<-chan error{first, third} {
		if err := <-failed; !errors.Is(err, ErrClosed) {
			t.Errorf("after Close the call fails with %v", err)
		}
	}
}

// A principal whose limit is the total leaves some workers for principals that have none.
func TestUse_GreedyPrincipal_LeavesReserve(t *testing.T) {
	const total = 2 * reservedShare
	q := newQueue(t, Options{PerPrincipal: total, Total: total, Idle: time.Minute, StartTimeout: time.Hour})
	ctx, cancel := context.WithCancelCause(within(t))
	var all sync.WaitGroup
	use := func(set *Set, key string) {
		failed := q.use(ctx, set, key)
		all.Go(func() {
			if err := <-failed; !errors.Is(err, errCancelled) {
				t.Errorf("%s fails with %v", key, err)
			}
		})
	}
	greedy := q.NewSet("greedy", func() {})
	for i := range total - 1 {
		use(greedy, fmt.Sprint(i))
	}
	for range total - 2 {
		<-q.started
	}
	q.awaitWaiting(t, 1)
	for i := range 2 {
		late := q.NewSet(fmt.Sprint("late ", i), func() {})
		use(late, "late")
		if b := <-q.started; b.key != "late" {
			t.Errorf("%s is started", b.key)
		}
		use(late, "more")
		q.awaitWaiting(t, 2+i)
	}
	cancel(errCancelled)
	all.Wait()
}
