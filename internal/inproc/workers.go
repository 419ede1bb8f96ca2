package inproc

import "sync"

// maxIdleWorkers is how many goroutines wait for the next call.
const maxIdleWorkers = 16

// workers are goroutines that have carried out a call and wait for another. The
// stack of a new one has to grow first, which takes a short call a tenth of its
// time.
type workers struct {
	all sync.WaitGroup

	mu     sync.Mutex
	idle   []chan func() // guarded by mu; each has room for one
	closed bool          // guarded by mu
}

// run has f run by another goroutine.
func (w *workers) run(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if last := len(w.idle) - 1; last >= 0 {
		w.idle[last] <- f
		w.idle = w.idle[:last]
		return
	}
	w.all.Go(func() { w.work(f) })
}

func (w *workers) work(f func()) {
	next := make(chan func(), 1)
	for ok := true; ok; f, ok = <-next {
		f()
		f = nil // what it refers to must not wait for the next
		if !w.rest(next) {
			return
		}
	}
}

// rest makes the goroutine one that waits, unless enough do.
func (w *workers) rest(next chan func()) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || len(w.idle) == maxIdleWorkers {
		return false
	}
	w.idle = append(w.idle, next)
	return true
}

// close ends those that wait, and returns when all have ended. Nothing may be
// run any more.
func (w *workers) close() {
	w.mu.Lock()
	w.closed = true
	for _, next := range w.idle {
		close(next)
	}
	w.idle = nil
	w.mu.Unlock()
	w.all.Wait()
}
