package call

import (
	"context"
	"strings"
	"sync"
)

// Turn orders a request after earlier requests that it must not overtake.
type Turn struct {
	after []<-chan struct{}
	onEnd []func() // called when the request is done
}

// Wait blocks until the requests before it are done or ctx ends.
func (t *Turn) Wait(ctx context.Context) error {
	for _, before := range t.after {
		select {
		case <-before:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// End releases the requests that wait for this one.
func (t *Turn) End() {
	for _, f := range t.onEnd {
		f()
	}
}

// After orders the request after the end of before; nil is none.
func (t *Turn) After(before <-chan struct{}) {
	if before != nil {
		t.after = append(t.after, before)
	}
}

// OnEnd has f called when the request is done.
func (t *Turn) OnEnd(f func()) { t.onEnd = append(t.onEnd, f) }

// Follow orders the request after the one in last, if any, and replaces it.
func (t *Turn) Follow(last *<-chan struct{}) {
	t.After(*last)
	done := make(chan struct{})
	t.OnEnd(func() { close(done) })
	*last = done
}

// Paths orders calls on overlapping paths if one of them changes something, so that
// a client that does not wait for answers gets the same results as one that does.
type Paths struct {
	mu       sync.Mutex
	inFlight map[*pathTurn]struct{} // guarded by mu
}

// pathTurn is a call in flight.
type pathTurn struct {
	paths   []string
	changes bool
	done    chan struct{}
}

// Enqueue assigns a turn to a call on paths, absolute and clean, which it may change. Calls
// are in the order in which requests arrive.
func (o *Paths) Enqueue(t *Turn, paths []string, changes bool) {
	own := &pathTurn{paths: paths, changes: changes, done: make(chan struct{})}
	t.OnEnd(func() { o.remove(own) })
	o.mu.Lock()
	defer o.mu.Unlock()
	for other := range o.inFlight {
		if (own.changes || other.changes) && overlap(own.paths, other.paths) {
			t.After(other.done)
		}
	}
	if o.inFlight == nil {
		o.inFlight = make(map[*pathTurn]struct{})
	}
	o.inFlight[own] = struct{}{}
}

func (o *Paths) remove(own *pathTurn) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.inFlight, own)
	close(own.done)
}

// overlap reports whether a path of one list equals, contains or is in one of the
// other.
func overlap(some, others []string) bool {
	for _, one := range some {
		for _, other := range others {
			if isWithin(one, other) || isWithin(other, one) {
				return true
			}
		}
	}
	return false
}

func isWithin(path, directory string) bool {
	rest, ok := strings.CutPrefix(path, directory)
	return ok && (rest == "" || rest[0] == '/' || strings.HasSuffix(directory, "/"))
}
