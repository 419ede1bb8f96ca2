package fileworker

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/semaphore"
)

// LimitError is the error if too many workers are in use.
type LimitError struct {
	// Setting is the name of the limit.
	Setting string
	// Limit is its value.
	Limit int
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("%d workers for sandboxed calls about files are in use, and %s allows no more: try again when calls have ended", e.Limit, e.Setting)
}

// reservedShare is the part of all workers (one in reservedShare) that is reserved for principals without any, so that no
// principal can exclude the others.
const reservedShare = 8

// principalGroup is the workers of a principal, in all its sessions.
type principalGroup struct {
	places  *semaphore.Weighted  // like those of the pool
	all     map[*worker]struct{} // guarded by the pool's mu
	running int                  // guarded by the pool's mu; goroutines of workers, evicted ones included
}

// queueEntry is a call that waits for a worker.
type queueEntry struct {
	set   *Set
	key   string
	start Start

	done  chan struct{} // closed when one of the next two fields is set
	lease *Lease        // of the worker that it uses
	err   error
}

// wait waits until the entry is served, at most as long as a worker may take to start.
func (e *queueEntry) wait(ctx context.Context) (*Lease, error) {
	p := e.set.pool
	p.mu.Lock()
	p.queue = append(p.queue, e)
	p.serveLocked()
	p.mu.Unlock()
	select {
	case <-e.done:
		return e.lease, e.err
	default:
	}
	patience := time.NewTimer(p.options.StartTimeout)
	defer patience.Stop()
	select {
	case <-e.done:
	case <-patience.C:
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	at := slices.Index(p.queue, e)
	switch {
	case at < 0:
		return e.lease, e.err
	case ctx.Err() != nil:
		e.err = context.Cause(ctx)
	default:
		_, limit := p.capacityLocked(e.set)
		e.err = &limit.LimitError
	}
	p.queue = slices.Delete(p.queue, at, at+1)
	return nil, e.err
}

// serveLocked serves calls that wait, in the order in which they came, as far as the limits allow.
func (p *Pool) serveLocked() {
	if len(p.queue) > 0 {
		p.queue = slices.DeleteFunc(p.queue, p.serveOneLocked)
	}
}

// serveOneLocked reports whether a call waits no longer.
func (p *Pool) serveOneLocked(e *queueEntry) bool {
	s := e.set
	if s.closed || p.closed {
		e.err = ErrClosed
	} else if w := s.byKey[e.key]; w != nil {
		e.lease = w.leaseLocked(false)
	} else if victim, limit := p.capacityLocked(s); limit == nil {
		e.lease = p.startLocked(e, victim).leaseLocked(false)
	} else if limit.permanent {
		e.err = &limit.LimitError
	} else {
		return false
	}
	close(e.done)
	return true
}

// noCapacity is the limit that was reached. It is permanent if all leases are long.
type noCapacity struct {
	LimitError
	permanent bool
}

// capacityLocked returns the limit that keeps a set from having another worker, or else the worker to evict for it, if any: the
// one that was idle for longest, or else, of those with only interrupted objects, the one that was used longest ago.
func (p *Pool) capacityLocked(s *Set) (victim *worker, limit *noCapacity) {
	var own map[*worker]struct{}
	if g := p.groups[s.principal]; g != nil {
		own = g.all
	}
	total, from := p.options.Total, p.all
	allowed := total
	if len(own) > 0 {
		allowed -= total / reservedShare
	}
	limit = &noCapacity{LimitError: LimitError{Setting: "file_workers_total", Limit: total}}
	switch {
	case len(own) >= p.options.PerPrincipal:
		limit.LimitError = LimitError{Setting: "file_workers_per_principal", Limit: p.options.PerPrincipal}
		from = own
	case len(p.all) < allowed:
		return nil, nil
	case len(p.all) > allowed:
		from = own // the workers of others are within the reserved part
	}
	limit.permanent = true
	for w := range from {
		switch {
		case w.users > w.interrupted:
		case victim == nil, w.interrupted == 0 && victim.interrupted > 0:
			victim = w
		case (w.interrupted == 0) == (victim.interrupted == 0) && w.used.Before(victim.used):
			victim = w
		}
		limit.permanent = limit.permanent && w.longLeases > w.interrupted
	}
	if victim != nil {
		return victim, nil
	}
	return nil, limit
}

// startLocked starts a worker, and evicts another if that is not nil.
func (p *Pool) startLocked(e *queueEntry, victim *worker) *worker {
	if victim != nil {
		p.removeLocked(victim)
		if victim.set != e.set && len(victim.set.byKey) == 0 {
			p.working.Go(victim.set.emptied)
		}
	}
	g := p.groups[e.set.principal]
	if g == nil {
		g = &principalGroup{places: semaphore.NewWeighted(int64(p.options.PerPrincipal)), all: make(map[*worker]struct{})}
		p.groups[e.set.principal] = g
	}
	w := &worker{set: e.set, group: g, key: e.key, ready: make(chan struct{}), pinned: make(map[string]*pinned)}
	w.ctx, w.end = context.WithCancelCause(context.Background())
	e.set.byKey[e.key] = w
	p.all[w], g.all[w] = struct{}{}, struct{}{}
	g.running++
	p.working.Go(func() {
		p.run(w, e.start)
		p.mu.Lock()
		defer p.mu.Unlock()
		if g.running--; g.running == 0 {
			delete(p.groups, e.set.principal)
		}
	})
	return w
}
