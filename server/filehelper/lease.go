package filehelper

import (
	"sync"
	"time"

	"google.golang.org/grpc"
)

// Lease is the right to use a helper, which does not give way meanwhile.
type Lease struct {
	helper *helper
	lasts  bool
	once   sync.Once
}

// Conn is the connection to the helper. Calls on it fail with codes.Unavailable when the helper has ended.
func (l *Lease) Conn() grpc.ClientConnInterface { return l.helper.conn }

// Lasting returns one more lease of the same helper, for as long as somebody wants: nobody waits for its end who wants
// another helper.
func (l *Lease) Lasting() *Lease {
	p := l.helper.set.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	l.helper.take()
	l.helper.lasting++
	p.serveLocked()
	return &Lease{helper: l.helper, lasts: true}
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
		p := l.helper.set.pool
		p.mu.Lock()
		defer p.mu.Unlock()
		if l.lasts {
			l.helper.lasting--
		}
		l.helper.leaveLocked()
	})
}

// leaveLocked takes a user away.
func (h *helper) leaveLocked() {
	p := h.set.pool
	h.users--
	if _, there := p.all[h]; h.users > 0 || !there {
		return
	}
	h.used = time.Now()
	if h.timer == nil {
		h.timer = time.AfterFunc(p.options.Idle, func() { p.expire(h) })
	}
	p.serveLocked()
}
