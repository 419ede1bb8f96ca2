package process

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/execwire/execwire/internal/procfs"
)

// pendingForks are the starts under way. Their children may exist already and not be registered yet.
type pendingForks struct {
	mu  sync.Mutex
	all map[*pendingFork]struct{}
}

type pendingFork struct {
	done      chan struct{}
	startedAt time.Time
	tick      uint64 // a time before the fork
}

// begin has to be called before a fork, and end when the child is registered or gone.
func (f *pendingForks) begin() *pendingFork {
	fork := &pendingFork{done: make(chan struct{}), startedAt: time.Now(), tick: max(1, procfs.BootTicks())}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all[fork] = struct{}{}
	return fork
}

func (f *pendingForks) end(fork *pendingFork) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.all, fork)
	close(fork.done)
}

// forkTimeout bounds how long a scan waits for a start, which may hang on a file system.
const forkTimeout = 50 * time.Millisecond

// wait waits for the pending forks. It returns a tick before the forks that did not finish in time,
// or 0 if all finished.
func (f *pendingForks) wait() (earliest uint64) {
	f.mu.Lock()
	forks := slices.Collect(maps.Keys(f.all))
	f.mu.Unlock()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for _, fork := range forks {
		timer.Reset(time.Until(fork.startedAt.Add(forkTimeout)))
		select {
		case <-fork.done:
		case <-timer.C:
			if earliest == 0 || fork.tick < earliest {
				earliest = fork.tick
			}
		}
	}
	return earliest
}
