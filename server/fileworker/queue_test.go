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

// patience guards against hanging.
const patience = 2 * time.Minute

var errCancelled = errors.New("the test cancelled the call")

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeoutCause(t.Context(), patience, errStartTimeout)
	t.Cleanup(cancel)
	return ctx
}

// queue is a pool whose workers never come up, but first say so.
type queue struct {
	*Pool
	started chan beginning
}

// beginning is a worker that is being started.
type beginning struct {
	key  string
	fail chan struct{} // closed to have it fail
}

var errNever = errors.New("it never comes up")

func newQueue(t *testing.T, options Options) *queue {
	q := &queue{Pool: NewPool(options), started: make(chan beginning, 100)}
	t.Cleanup(q.Close)
	return q
}

// use has somebody use a worker in the background.
func (q *queue) use(ctx context.Context, s *Set, key string) <-chan error {
	failed := make(chan error, 1)
	go func() {
		_, err := s.Use(ctx, key, func(ctx context.Context) (*sandbox.Worker, error) {
			b := beginning{key, make(chan struct{})}
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

// awaitWaiting waits until so many wait.
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
			t.Fatalf("%d wait, not %d", waiting, n)
		}
	}
}

func TestWhoeverWaitsIsServedInTurn(t *testing.T) {
	q := newQueue(t, Options{PerPrincipal: 1, Total: 2, Idle: time.Minute, StartTimeout: time.Hour})
	mine, mineToo, yours := q.NewSet("me", func() {}), q.NewSet("me", func() {}), q.NewSet("you", func() {})
	ctx, cancel := context.WithCancelCause(within(t))
	first := q.use(ctx, mine, "first")
	begun := []beginning{<-q.started}
	var all []<-chan error
	for i := range 5 {
		s := mine
		if i%2 == 1 {
			s = mineToo
		}
		all = append(all, q.use(ctx, s, fmt.Sprint(i)))
		q.awaitWaiting(t, i+1)
	}
	other := q.use(ctx, yours, "yours") // for whom there is room
	begun = append(begun, <-q.started)
	gone, goes := context.WithCancelCause(ctx)
	givesUp := q.use(gone, mine, "gives up")
	q.awaitWaiting(t, 6)
	goes(errCancelled)
	if err := <-givesUp; !errors.Is(err, errCancelled) {
		t.Errorf("who gives up is told %v", err)
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

func TestWaitingIsBounded(t *testing.T) {
	q := newQueue(t, Options{PerPrincipal: 1, Total: 1, Idle: time.Minute, StartTimeout: time.Millisecond})
	set, ctx := q.NewSet("me", func() {}), within(t)
	q.options.StartTimeout = time.Hour // of what comes first
	first := q.use(ctx, set, "first")
	<-q.started
	q.options.StartTimeout = time.Millisecond
	err := <-q.use(ctx, set, "second")
	if limit, is := errors.AsType[*LimitError](err); !is || limit.Limit != 1 || limit.Setting != "file_helpers_per_principal" {
		t.Errorf("it is refused with %v", err)
	}
	q.options.StartTimeout = time.Hour
	third := q.use(ctx, set, "third")
	q.awaitWaiting(t, 1)
	set.Close()
	for _, failed := range []<-chan error{first, third} {
		if err := <-failed; !errors.Is(err, ErrClosed) {
			t.Errorf("after the session it fails with %v", err)
		}
	}
}

// A principal who may have all workers leaves some for those who have none, who need not wait.
func TestSomeWorkersAreReserved(t *testing.T) {
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
			t.Errorf("%s is served", b.key)
		}
		use(late, "more")
		q.awaitWaiting(t, 2+i)
	}
	cancel(errCancelled)
	all.Wait()
}
