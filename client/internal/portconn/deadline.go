package portconn

import (
	"sync"
	"time"
)

// deadline is a point in time that can be moved, also while a call waits for it.
type deadline struct {
	mu      sync.Mutex
	timer   *time.Timer   // guarded by mu; nil: none
	expired chan struct{} // guarded by mu; closed when it is over
}

func newDeadline() *deadline { return &deadline{expired: make(chan struct{})} }

// set moves it; zero is never.
func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil && !d.timer.Stop() {
		<-d.expired // its function runs, and closes this channel
	}
	d.timer = nil
	select {
	case <-d.expired:
		d.expired = make(chan struct{})
	default:
	}
	switch left := time.Until(t); {
	case t.IsZero():
	case left <= 0:
		close(d.expired)
	default:
		expired := d.expired
		d.timer = time.AfterFunc(left, func() { close(expired) })
	}
}

// wait returns a channel that is closed when the deadline is over.
func (d *deadline) wait() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.expired
}
