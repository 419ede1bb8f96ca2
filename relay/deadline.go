package relay

import (
	"context"
	"os"
	"sync"
	"time"
)

// pastTime is a deadline that has expired.
var pastTime = time.Unix(1, 0)

// deadline is a resettable timeout that can be waited for.
type deadline struct {
	mu     sync.Mutex
	timer  *time.Timer             // guarded by mu; nil if none was set
	ctx    context.Context         // guarded by mu; ends on expiry, with [os.ErrDeadlineExceeded]
	cancel context.CancelCauseFunc // guarded by mu; of ctx
}

func newDeadline() *deadline {
	d := &deadline{}
	d.ctx, d.cancel = context.WithCancelCause(context.Background())
	return d
}

// context returns a context that ends when the deadline expires.
func (d *deadline) context() context.Context {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ctx
}

// set sets the deadline; zero disables it.
func (d *deadline) set(t time.Time) {
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
