package wsconn

import (
	"sync"
	"time"
)

// beat calls a function again and again, without a goroutine while it waits.
type beat struct {
	interval time.Duration
	do       func()

	mu      sync.Mutex // held while the function runs
	timer   *time.Timer
	stopped bool
}

// every calls do each time another interval has passed, never twice at once; 0
// is never.
func every(interval time.Duration, do func()) *beat {
	b := &beat{interval: interval, do: do, stopped: interval == 0}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.stopped {
		b.timer = time.AfterFunc(interval, b.strike)
	}
	return b
}

func (b *beat) strike() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped {
		return
	}
	b.do()
	b.timer.Reset(b.interval)
}

// stop returns when the function neither runs nor will run. It must not be
// called by the function.
func (b *beat) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.stopped {
		b.stopped = true
		b.timer.Stop()
	}
}
