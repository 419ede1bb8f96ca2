package filehelper

import (
	"context"
	"fmt"
)

// LimitError says that there are too many helpers, all of which are in use.
type LimitError struct {
	// Setting is what bounds them.
	Setting string
	// Limit is how many there may be.
	Limit int
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("%d helpers for sandboxed calls about files are in use, and %s allows no more: try again when calls have ended", e.Limit, e.Setting)
}

// Set are the helpers of one session.
type Set struct {
	pool    *Pool
	emptied func()
	places  places
	byKey   map[string]*helper // guarded by the pool's mu
	closed  bool               // guarded by the pool's mu
}

// NewSet returns an empty set. emptied is called whenever its last helper has gone, without a lock held.
func (p *Pool) NewSet(emptied func()) *Set {
	return &Set{pool: p, emptied: emptied, places: make(places, p.options.PerSession), byKey: make(map[string]*helper)}
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
// that nobody has used for the longest time. It blocks until the helper answers, or ctx is done. It fails with what start
// failed with, a *[LimitError], [ErrClosed] or the cause of ctx.
func (s *Set) Use(ctx context.Context, key string, start Start) (*Lease, error) {
	h, err := s.find(key, start)
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

// find returns the helper for a key with one user more.
func (s *Set) find(key string, start Start) (*helper, error) {
	p := s.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.closed || p.closed {
		return nil, ErrClosed
	}
	if h := s.byKey[key]; h != nil {
		h.take()
		return h, nil
	}
	if err := s.makeRoomLocked(); err != nil {
		return nil, err
	}
	h := &helper{set: s, key: key, ready: make(chan struct{})}
	h.ctx, h.end = context.WithCancelCause(context.Background())
	h.take()
	s.byKey[key] = h
	p.all[h] = struct{}{}
	p.working.Go(func() { p.run(h, start) })
	return h, nil
}

// makeRoomLocked makes room for one helper more.
func (s *Set) makeRoomLocked() error {
	p := s.pool
	if len(s.byKey) >= p.options.PerSession {
		idle := oldest(s.byKey)
		if idle == nil {
			return &LimitError{Setting: "file_helpers_per_session", Limit: p.options.PerSession}
		}
		p.removeLocked(idle)
	}
	if len(p.all) < p.options.Total {
		return nil
	}
	all := make(map[string]*helper, len(p.all))
	for h := range p.all {
		all[fmt.Sprintf("%p", h)] = h
	}
	idle := oldest(all)
	if idle == nil {
		return &LimitError{Setting: "file_helpers_total", Limit: p.options.Total}
	}
	p.removeLocked(idle)
	if idle.set != s && len(idle.set.byKey) == 0 {
		p.working.Go(idle.set.emptied)
	}
	return nil
}

// oldest finds who has been without a user for the longest time.
func oldest(helpers map[string]*helper) (found *helper) {
	for _, h := range helpers {
		if h.users == 0 && (found == nil || h.used.Before(found.used)) {
			found = h
		}
	}
	return found
}

// take adds a user. The pool's mu is held.
func (h *helper) take() { h.users++ }
