package fsops

import (
	"context"
	"sync"
)

// turns lets one caller at a time do something with each of many things. The zero
// value is ready for use.
type turns[K comparable] struct {
	mu    sync.Mutex
	taken map[K]*turn // guarded by mu
}

// turn is whose turn it is with one thing.
type turn struct {
	free   chan struct{} // has a value while it is nobody's
	wanted int           // guarded by turns.mu; by those who have it or wait for it
}

// take waits until it is the caller's turn, which give ends.
func (t *turns[K]) take(ctx context.Context, key K) (give func(), err error) {
	t.mu.Lock()
	if t.taken == nil {
		t.taken = make(map[K]*turn)
	}
	at := t.taken[key]
	if at == nil {
		at = &turn{free: make(chan struct{}, 1)}
		at.free <- struct{}{}
		t.taken[key] = at
	}
	at.wanted++
	t.mu.Unlock()
	select {
	case <-at.free:
		return func() { at.free <- struct{}{}; t.leave(key, at) }, nil
	case <-ctx.Done():
		t.leave(key, at)
		return nil, context.Cause(ctx)
	}
}

func (t *turns[K]) leave(key K, at *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if at.wanted--; at.wanted == 0 {
		delete(t.taken, key)
	}
}
