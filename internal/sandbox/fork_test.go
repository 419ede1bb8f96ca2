package sandbox

import (
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// Forks that overlap without a pause leave ForkLock to others all the same.
func TestForkLock_BusyForks_OthersGetTheirTurn(t *testing.T) {
	l := newForkLock()
	stop := make(chan struct{})
	var underWay atomic.Int64
	var busy sync.WaitGroup
	for range 8 {
		busy.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				l.begin()
				underWay.Add(1)
				time.Sleep(100 * time.Microsecond)
				underWay.Add(-1)
				l.end()
			}
		})
	}
	for range 10 {
		syscall.ForkLock.Lock()
		if n := underWay.Load(); n > 0 {
			t.Errorf("%d forks are under way", n)
		}
		syscall.ForkLock.Unlock()
	}
	close(stop)
	busy.Wait()
}
