package filehelper

import "context"

// Set are the helpers of one session.
type Set struct {
	pool      *Pool
	principal string
	emptied   func()
	byKey     map[string]*helper // guarded by the pool's mu
	closed    bool               // guarded by the pool's mu
}

// NewSet returns an empty set of a principal. emptied is called whenever its last helper has gone, without a lock held.
func (p *Pool) NewSet(principal string, emptied func()) *Set {
	return &Set{pool: p, principal: principal, emptied: emptied, byKey: make(map[string]*helper)}
}

// IsEmpty reports whether there is no helper. It never blocks.
func (s *Set) IsEmpty() bool {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	return len(s.byKey) == 0
}

// Close ends all helpers of the set, and has calls that use them fail. It does not wait for their ends: [Pool.Close] does.
func (s *Set) Close() {
	s.pool.mu.Lock()
	s.closed = true
	var left []*helper
	for _, h := range s.byKey {
		left = append(left, h)
	}
	s.pool.mu.Unlock()
	s.pool.drop(left...)
}

// Use returns a lease of the helper for a key, and starts it if there is none. If there are too many, the one gives way
// that nobody has used for the longest time; if all are in use it waits its turn, unless all are for long. It blocks
// until the helper answers, or ctx is done. It fails with what start failed with, a *[LimitError], [ErrClosed] or the
// cause of ctx.
func (s *Set) Use(ctx context.Context, key string, start Start) (*Lease, error) {
	w := &waiter{set: s, key: key, start: start, done: make(chan struct{})}
	h, err := w.wait(ctx)
	if err != nil {
		return nil, err
	}
	return h.await(ctx)
}

// await waits until a helper answers whom a user has taken.
func (h *helper) await(ctx context.Context) (*Lease, error) {
	lease := &Lease{helper: h}
	var err error
	select {
	case <-h.ready:
		err = h.err
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		lease.Release()
		return nil, err
	}
	return lease, nil
}

// Find returns a lease of the helper for a key, as [Set.Use] does, and nil if there is none.
func (s *Set) Find(ctx context.Context, key string) (*Lease, error) {
	s.pool.mu.Lock()
	h := s.byKey[key]
	if h != nil {
		h.take()
	}
	s.pool.mu.Unlock()
	if h == nil {
		return nil, nil
	}
	return h.await(ctx)
}

// take adds a user. The pool's mu is held.
func (h *helper) take() { h.users++ }
