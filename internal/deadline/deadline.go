// Package deadline implements the deadlines of a net.Conn.
package deadline

import (
	"context"
	"os"
	"sync"
	"time"
)

// Deadline is a point in time that can be moved while calls wait for it. Its methods may be
// called concurrently, and do not block.
type Deadline struct {
	mu     sync.Mutex
	timer  *time.Timer             // guarded by mu; nil if none was set
	ctx    context.Context         // guarded by mu
	cancel context.CancelCauseFunc // guarded by mu; of ctx
}

// New returns a deadline that never expires, until Set.
func New() *Deadline {
	d := &Deadline{}
	d.ctx, d.cancel = context.WithCancelCause(context.Background())
	return d
}

// Context returns a context that ends when the deadline expires, with the cause
// [os.ErrDeadlineExceeded]. It follows Set until then.
func (d *Deadline) Context() context.Context {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ctx
}

// Set moves the deadline; zero is never.
func (d *Deadline) Set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	if d.ctx.Err() != nil {
		d.ctx, d.cancel = context.WithCancelCause(context.Background())
	}
	if t.IsZero() {
		return
	}
	wait := time.Until(t)
	if wait <= 0 {
		d.cancel(os.ErrDeadlineExceeded)
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(wait, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.timer == timer { // it was not set again since
			d.cancel(os.ErrDeadlineExceeded)
		}
	})
	d.timer = timer
}
