package filehelper

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// LimitError says that there are too many helpers, which are in use.
type LimitError struct {
	// Setting is what bounds them.
	Setting string
	// Limit is how many there may be.
	Limit int
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("%d helpers for sandboxed calls about files are in use, and %s allows no more: try again when calls have ended", e.Limit, e.Setting)
}

// reservedShare is the part of all helpers, one in so many, that only principals get who have none: nobody keeps everybody
// else from sandboxed calls.
const reservedShare = 8

// group are the helpers of a principal, of whatever session.
type group struct {
	places  places
	all     map[*helper]struct{} // guarded by the pool's mu
	running int                  // guarded by the pool's mu; goroutines of helpers, those too that have given way
}

// waiter is somebody who wants to use a helper.
type waiter struct {
	set   *Set
	key   string
	start Start

	done   chan struct{} // closed when one of what follows is set
	helper *helper       // which it is a user of
	err    error
}

// wait waits until it is the waiter's turn, for as long as a helper may take to come up.
func (w *waiter) wait(ctx context.Context) (*helper, error) {
	p := w.set.pool
	p.mu.Lock()
	p.waiting = append(p.waiting, w)
	p.serveLocked()
	p.mu.Unlock()
	select {
	case <-w.done:
		return w.helper, w.err
	default:
	}
	patience := time.NewTimer(p.options.Patience)
	defer patience.Stop()
	select {
	case <-w.done:
	case <-patience.C:
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	at := slices.Index(p.waiting, w)
	switch {
	case at < 0:
		return w.helper, w.err
	case ctx.Err() != nil:
		w.err = context.Cause(ctx)
	default:
		_, limit := p.roomLocked(w.set)
		w.err = &limit.LimitError
	}
	p.waiting = slices.Delete(p.waiting, at, at+1)
	return nil, w.err
}

// serveLocked gives those who wait their helpers, in the order in which they came, as far as there is room.
func (p *Pool) serveLocked() {
	if len(p.waiting) > 0 {
		p.waiting = slices.DeleteFunc(p.waiting, p.serveOneLocked)
	}
}

// serveOneLocked reports whether a waiter waits no longer.
func (p *Pool) serveOneLocked(w *waiter) bool {
	s := w.set
	if s.closed || p.closed {
		w.err = ErrClosed
	} else if h := s.byKey[w.key]; h != nil {
		w.helper = h
	} else if victim, limit := p.roomLocked(s); limit == nil {
		w.helper = p.beginLocked(w, victim)
	} else if limit.hopeless {
		w.err = &limit.LimitError
	} else {
		return false
	}
	if w.helper != nil {
		w.helper.take()
	}
	close(w.done)
	return true
}

// noRoom is why there is no room, and whether there will be none until somebody closes what lasts.
type noRoom struct {
	LimitError
	hopeless bool
}

// roomLocked tells whether there may be one more helper in a set, and which one gives way to it: of those that nobody
// uses the one that was used the longest time ago; if there is none, likewise of those that only have what is
// unfinished and no stream brings. Nil gives way to none.
func (p *Pool) roomLocked(s *Set) (victim *helper, limit *noRoom) {
	var own map[*helper]struct{}
	if g := p.groups[s.principal]; g != nil {
		own = g.all
	}
	total, from := p.options.Total, p.all
	allowed := total
	if len(own) > 0 {
		allowed -= total / reservedShare
	}
	limit = &noRoom{LimitError: LimitError{Setting: "file_helpers_total", Limit: total}}
	switch {
	case len(own) >= p.options.PerPrincipal:
		limit.LimitError = LimitError{Setting: "file_helpers_per_principal", Limit: p.options.PerPrincipal}
		from = own
	case len(p.all) < allowed:
		return nil, nil
	case len(p.all) > allowed:
		from = own // what others have is reserved for those who have none
	}
	limit.hopeless = true
	for h := range from {
		switch {
		case h.users > h.abandoned:
		case victim == nil, h.abandoned == 0 && victim.abandoned > 0:
			victim = h
		case (h.abandoned == 0) == (victim.abandoned == 0) && h.used.Before(victim.used):
			victim = h
		}
		limit.hopeless = limit.hopeless && h.lasting > h.abandoned
	}
	if victim != nil {
		return victim, nil
	}
	return nil, limit
}

// beginLocked begins a helper, in the place of another one if that is not nil.
func (p *Pool) beginLocked(w *waiter, victim *helper) *helper {
	if victim != nil {
		p.removeLocked(victim)
		if victim.set != w.set && len(victim.set.byKey) == 0 {
			p.working.Go(victim.set.emptied)
		}
	}
	g := p.groups[w.set.principal]
	if g == nil {
		g = &group{places: make(places, p.options.PerPrincipal), all: make(map[*helper]struct{})}
		p.groups[w.set.principal] = g
	}
	h := &helper{set: w.set, group: g, key: w.key, ready: make(chan struct{}), loan: newLoan()}
	h.ctx, h.end = context.WithCancelCause(context.Background())
	w.set.byKey[w.key] = h
	p.all[h], g.all[h] = struct{}{}, struct{}{}
	g.running++
	p.working.Go(func() {
		p.run(h, w.start)
		p.mu.Lock()
		defer p.mu.Unlock()
		if g.running--; g.running == 0 {
			delete(p.groups, w.set.principal)
		}
	})
	return h
}
