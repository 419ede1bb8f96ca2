package syslimit

import (
	"runtime"
	"sync"
)

// MakeThreads makes the runtime have n threads that are not needed yet, or a quarter of
// the processes and threads that the system lets this program have if that is less. It keeps them, so
// that it does not have to make them when the system has none left, which would end the
// program. It blocks until they are there, some tens of microseconds for each.
func MakeThreads(n int) {
	if limit, limited := (System{}).Processes(); limited {
		n = int(min(uint64(max(n, 0)), limit/4))
	}
	var there, gone sync.WaitGroup
	leave := make(chan struct{})
	there.Add(n)
	for range n {
		gone.Go(func() {
			// A goroutine that is locked keeps its thread also while it waits. One
			// that ends unlocked gives the thread to the runtime's idle ones.
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			there.Done()
			<-leave
		})
	}
	there.Wait()
	close(leave)
	gone.Wait()
}
