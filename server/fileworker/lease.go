package fileworker

import (
	"sync"
	"time"

	"google.golang.org/grpc"
)

// Lease is the right to use a worker. A worker with a lease is not evicted.
type Lease struct {
	worker *worker
	long   bool
	once   sync.Once
}

// Conn returns the connection to the worker. Calls on it fail with codes.Unavailable when the worker has ended.
func (l *Lease) Conn() grpc.ClientConnInterface { return l.worker.conn }

// Long returns another lease of the same worker that may be held for as long as a client wants: calls that need another worker
// do not wait for its end.
func (l *Lease) Long() *Lease {
	p := l.worker.set.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	l.worker.addUser()
	l.worker.longLeases++
	p.serveLocked()
	return &Lease{worker: l.worker, long: true}
}

// Closed reports whether the worker was ended because its session has ended.
func (l *Lease) Closed() bool {
	p := l.worker.set.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	return l.worker.set.closed || p.closed
}

// Ended is closed when the worker cannot be used any more.
func (l *Lease) Ended() <-chan struct{} { return l.worker.ctx.Done() }

// Release ends the lease. It may be called more than once.
func (l *Lease) Release() {
	l.once.Do(func() {
		p := l.worker.set.pool
		p.mu.Lock()
		defer p.mu.Unlock()
		if l.long {
			l.worker.longLeases--
		}
		l.worker.leaveLocked()
	})
}

// leaveLocked removes a user.
func (w *worker) leaveLocked() {
	p := w.set.pool
	w.users--
	if _, there := p.all[w]; w.users > 0 || !there {
		return
	}
	w.used = time.Now()
	if w.timer == nil {
		w.timer = time.AfterFunc(p.options.Idle, func() { p.expire(w) })
	}
	p.serveLocked()
}
