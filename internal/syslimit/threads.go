package syslimit

import (
	"runtime"
	"sync"
)

// MakeThreads makes the runtime create n threads that are not needed yet, or a quarter of the
// processes and threads that the limits permit if that is less. It keeps them, so that it does not
// have to create them when the limit is reached, which would end the program. It blocks until they
// exist, some tens of microseconds for each.
func MakeThreads(n int) {
	if limit, limited := (System{}).Processes(); limited {
		n = int(min(uint64(max(n, 0)), limit/4))
	}
	var ready, done sync.WaitGroup
	release := make(chan struct{})
	ready.Add(n)
	for range n {
		done.Go(func() {
			// A locked goroutine keeps its thread while it waits. When it ends unlocked the thread
			// goes to the idle threads of the runtime.
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			ready.Done()
			<-release
		})
	}
	ready.Wait()
	close(release)
	done.Wait()
}
