package sandbox

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// onOwnThread calls do on a thread that ends with it, whatever do makes of it, and waits. It is not the first thread:
// that does not end, and what others see of this process in /proc is that one's.
func onOwnThread(do func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != os.Getpid() {
			done <- do()
			return // locked: so the thread ends
		}
		// As long as this goroutine is locked to the first thread, another one has another.
		err := onOwnThread(do)
		runtime.UnlockOSThread()
		done <- err
	}()
	return <-done
}
