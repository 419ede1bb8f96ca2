package fileworker

import (
	"context"
	"time"

	"google.golang.org/grpc"

	"github.com/execwire/execwire/internal/sandbox"
)

// Lease is the right to use a worker. A worker with a lease is not evicted.
type Lease struct {
	worker   *worker
	long     bool
	released bool // guarded by the pool's mu
}

// leaseLocked returns a new lease.
func (w *worker) leaseLocked(long bool) *Lease {
	w.users++
	if long {
		w.longLeases++
	}
	return &Lease{worker: w, long: long}
}

// await waits until the worker answers, and otherwise ends the lease.
func (l *Lease) await(ctx context.Context) (*Lease, error) {
	var err error
	select {
	case <-l.worker.ready:
		err = l.worker.err
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		l.Release()
		return nil, err
	}
	return l, nil
}

// Conn returns the connection to the worker. Calls on it fail with codes.Unavailable when the worker has ended.
func (l *Lease) Conn() grpc.ClientConnInterface { return l.worker.conn }

// Report describes what is enforced on the worker.
func (l *Lease) Report() sandbox.Report { return l.worker.process.Report() }

// Long returns another lease of the same worker that may be held for as long as a client wants: calls that need another worker
// do not wait for its end.
func (l *Lease) Long() *Lease {
	p := l.worker.set.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	long := l.worker.leaseLocked(true)
	p.serveLocked()
	return long
}

// Closed reports whether the worker was ended because its session has ended.
func (l *Lease) Closed() bool {
	p := l.worker.set.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	return l.worker.set.closed || p.closed
}

// Release ends the lease. It may be called more than once.
func (l *Lease) Release() {
	p := l.worker.set.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	l.releaseLocked()
}

func (l *Lease) releaseLocked() {
	if l.released {
		return
	}
	l.released = true
	if l.long {
		l.worker.longLeases--
	}
	l.worker.leaveLocked()
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
