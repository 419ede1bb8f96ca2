package sandbox

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// threadNetwork is the network namespace of the current thread.
const threadNetwork = "/proc/thread-self/ns/net"

// onNewThread calls do on a temporary thread. It is not the main thread, which would
// not end, and whose attributes /proc shows for the process.
func onNewThread(do func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != os.Getpid() {
			done <- do()
			return // without unlocking, so the thread ends
		}
		// While this goroutine is locked to the main thread, another one gets another
		// thread.
		err := onNewThread(do)
		runtime.UnlockOSThread()
		done <- err
	}()
	return <-done
}
