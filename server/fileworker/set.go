package fileworker

import (
	"context"
	"maps"
	"slices"
)

// Set is the workers of one session.
type Set struct {
	pool      *Pool
	principal string
	emptied   func()
	byKey     map[string]*worker // guarded by the pool's mu
	closed    bool               // guarded by the pool's mu
}

// NewSet returns an empty set of a principal. emptied is called whenever its last worker was removed, without a lock held.
func (p *Pool) NewSet(principal string, emptied func()) *Set {
	return &Set{pool: p, principal: principal, emptied: emptied, byKey: make(map[string]*worker)}
}

// IsEmpty reports whether the set has no worker. It never blocks.
func (s *Set) IsEmpty() bool {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	return len(s.byKey) == 0
}

// Close ends all workers of the set; calls that use them fail. It does not wait for their ends: [Pool.Close] does.
func (s *Set) Close() {
	s.pool.mu.Lock()
	s.closed = true
	left := slices.Collect(maps.Values(s.byKey))
	s.pool.mu.Unlock()
	s.pool.drop(left...)
}

// Use returns a lease of the worker for a key, and starts the worker if there is none. At the limit it evicts the worker that
// was idle for longest. If all are in use it waits its turn, unless all leases are long. It blocks until the worker answers,
// or ctx is done. The error is that of start, a *[LimitError], [ErrClosed] or the cause of ctx.
func (s *Set) Use(ctx context.Context, key string, start Start) (*Lease, error) {
	e := &queueEntry{set: s, key: key, start: start, done: make(chan struct{})}
	lease, err := e.wait(ctx)
	if err != nil {
		return nil, err
	}
	return lease.await(ctx)
}

// Find returns a lease of the worker for a key, as [Set.Use] does, and nil if there is none.
func (s *Set) Find(ctx context.Context, key string) (*Lease, error) {
	s.pool.mu.Lock()
	w := s.byKey[key]
	if w == nil {
		s.pool.mu.Unlock()
		return nil, nil
	}
	lease := w.leaseLocked(false)
	s.pool.mu.Unlock()
	return lease.await(ctx)
}
