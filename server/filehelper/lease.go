package filehelper

import (
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
)

// Lease is the right to use a helper, which does not give way meanwhile.
type Lease struct {
	helper *helper
	once   sync.Once
}

// Conn is the connection to the helper. Calls on it fail with codes.Unavailable when the helper has ended.
func (l *Lease) Conn() grpc.ClientConnInterface { return l.helper.conn }

// Again returns one more lease of the same helper.
func (l *Lease) Again() *Lease {
	p := l.helper.set.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	l.helper.take()
	return &Lease{helper: l.helper}
}

// Closed reports whether the helper was ended because its session has.
func (l *Lease) Closed() bool {
	p := l.helper.set.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	return l.helper.set.closed || p.closed
}

// Ended is closed when the helper is not of use any more.
func (l *Lease) Ended() <-chan struct{} { return l.helper.ctx.Done() }

// Release gives the lease back. It may be called more than once.
func (l *Lease) Release() {
	l.once.Do(func() {
		h, p := l.helper, l.helper.set.pool
		p.mu.Lock()
		defer p.mu.Unlock()
		h.users--
		if _, there := p.all[h]; h.users > 0 || !there {
			return
		}
		h.used = time.Now()
		if h.timer == nil {
			h.timer = time.AfterFunc(p.options.Idle, func() { p.expire(h) })
		}
	})
}

// kept is something that a helper has.
type kept struct {
	lease *Lease      // nil: the helper may give way all the same
	timer *time.Timer // nil: it does not end by itself
}

func (k *kept) stop() {
	if k.timer != nil {
		k.timer.Stop()
	}
}

// Keep notes that the helper has something by a name, in place of what was noted by that name: for a while, or if that
// is 0 until [Lease.Forget]. What is pinned keeps the helper, as a lease does.
func (l *Lease) Keep(name string, pinned bool, while time.Duration) {
	h, p := l.helper, l.helper.set.pool
	k := &kept{}
	if pinned {
		k.lease = l.Again()
	}
	p.mu.Lock()
	old := h.kept[name]
	_, there := p.all[h]
	if there {
		if h.kept == nil {
			h.kept = make(map[string]*kept)
		}
		h.kept[name] = k
		if while > 0 {
			k.timer = time.AfterFunc(while, func() { h.forget(name, k) })
		}
	}
	p.mu.Unlock()
	if old != nil {
		old.end()
	}
	if !there {
		k.end()
	}
}

// end gives up what it kept.
func (k *kept) end() {
	k.stop()
	if k.lease != nil {
		k.lease.Release()
	}
}

// Forget ends what [Lease.Keep] has begun.
func (l *Lease) Forget(name string) { l.helper.forget(name, nil) }

// forget forgets what is noted by a name, if it is still that, or whatever it is.
func (h *helper) forget(name string, only *kept) {
	p := h.set.pool
	p.mu.Lock()
	k := h.kept[name]
	if k == nil || only != nil && k != only {
		p.mu.Unlock()
		return
	}
	delete(h.kept, name)
	p.mu.Unlock()
	k.end()
}

// Having returns a lease of each helper that has something by a name, the last used first.
func (s *Set) Having(name string) []*Lease {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	var leases []*Lease
	for _, h := range s.byKey {
		if h.kept[name] != nil {
			h.take()
			leases = append(leases, &Lease{helper: h})
		}
	}
	slices.SortFunc(leases, func(a, b *Lease) int { return b.helper.used.Compare(a.helper.used) })
	return leases
}
