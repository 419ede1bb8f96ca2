package inproc

import (
	"sync"
	"testing"
)

func TestWorkersRunEverythingAndEnd(t *testing.T) {
	var w workers
	const rounds, atOnce = 50, 3 * maxIdleWorkers
	var mu sync.Mutex
	done := 0
	for range rounds {
		var running sync.WaitGroup
		meet := make(chan struct{})
		for range atOnce {
			running.Add(1)
			w.run(func() {
				defer running.Done()
				<-meet // all of them are there at once
				mu.Lock()
				done++
				mu.Unlock()
			})
		}
		close(meet)
		running.Wait()
		w.mu.Lock()
		if len(w.idle) > maxIdleWorkers {
			t.Errorf("%d wait", len(w.idle))
		}
		w.mu.Unlock()
	}
	w.close()
	if done != rounds*atOnce {
		t.Errorf("%d of %d were run", done, rounds*atOnce)
	}
	w.close()
}

func TestAWorkerIsUsedAgain(t *testing.T) {
	var w workers
	defer w.close()
	ran := make(chan struct{})
	w.run(func() { close(ran) })
	<-ran
	for { // until it waits
		w.mu.Lock()
		idle := len(w.idle)
		w.mu.Unlock()
		if idle == 1 {
			break
		}
	}
	again := make(chan struct{})
	w.run(func() { <-again })
	w.mu.Lock()
	idle := len(w.idle)
	w.mu.Unlock()
	close(again)
	if idle != 0 {
		t.Error("another goroutine was made")
	}
}
