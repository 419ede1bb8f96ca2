package wsconn

import (
	"sync"
	"sync/atomic"
	"time"
)

// ticker calls a function periodically, without a goroutine while it waits, until the function returns
// false, and again after resume.
type ticker struct {
	interval time.Duration
	do       func() (again bool)
	armed    atomic.Bool // a call follows, or none ever will

	mu      sync.Mutex // held while the function runs
	timer   *time.Timer
	stopped bool
}

// startTicker calls do after each interval, never concurrently. With interval 0
// it never does.
func startTicker(interval time.Duration, do func() (again bool)) *ticker {
	b := &ticker{interval: interval, do: do, stopped: interval == 0}
	b.armed.Store(true)
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.stopped {
		b.timer = time.AfterFunc(interval, b.tick)
	}
	return b
}

func (b *ticker) tick() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped {
		return
	}
	b.armed.Store(false) // before the function decides
	if b.do() {
		b.resume()
	}
}

// resume makes the function be called after the interval, unless a call follows already. It does not block.
func (b *ticker) resume() {
	if !b.armed.Load() && b.armed.CompareAndSwap(false, true) {
		b.timer.Reset(b.interval)
	}
}

// stop returns when the function neither runs nor will run. The function must not
// call it.
func (b *ticker) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.stopped {
		b.stopped = true
		b.armed.Store(true)
		b.timer.Stop()
	}
}
