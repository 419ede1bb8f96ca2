package wsconn

import (
	"sync"
	"time"
)

// ticker calls a function periodically, without a goroutine while it waits.
type ticker struct {
	interval time.Duration
	do       func()

	mu      sync.Mutex // held while the function runs
	timer   *time.Timer
	stopped bool
}

// startTicker calls do after each interval, never concurrently. With interval 0
// it never does.
func startTicker(interval time.Duration, do func()) *ticker {
	b := &ticker{interval: interval, do: do, stopped: interval == 0}
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
	b.do()
	b.timer.Reset(b.interval)
}

// stop returns when the function neither runs nor will run. The function must not
// call it.
func (b *ticker) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.stopped {
		b.stopped = true
		b.timer.Stop()
	}
}
