package relay

import (
	"sync"
	"time"
)

// past is a deadline that is over.
var past = time.Unix(1, 0)

// deadline is a time after which waiting ends. It may be set again while somebody
// waits.
type deadline struct {
	mu    sync.Mutex
	timer *time.Timer   // guarded by mu; nil if none was set
	over  chan struct{} // guarded by mu; closed when the time has come
	round int           // guarded by mu; how often it was set
}

func newDeadline() *deadline { return &deadline{over: make(chan struct{})} }

// done returns a channel that is closed when the time has come.
func (d *deadline) done() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.over
}

// set sets the time; zero is never.
func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.round++
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	if isDone(d.over) {
		d.over = make(chan struct{})
	}
	if t.IsZero() {
		return
	}
	wait := time.Until(t)
	if wait <= 0 {
		close(d.over)
		return
	}
	round := d.round
	d.timer = time.AfterFunc(wait, func() { d.strike(round) })
}

// strike ends the waiting of a round, unless another has begun.
func (d *deadline) strike(round int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.round == round {
		close(d.over)
	}
}
