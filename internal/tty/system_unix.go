//go:build unix

package tty

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// OnResize calls do, from another goroutine, when the terminal may have another size: also
// when this program continues after it was stopped. stop waits for a call in progress.
func OnResize(do func()) (stop func()) {
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH, syscall.SIGCONT)
	var loop sync.WaitGroup
	loop.Go(func() {
		for range resized {
			do()
		}
	})
	return func() {
		signal.Stop(resized)
		close(resized)
		loop.Wait()
	}
}

// rawScreen does nothing: [term.MakeRaw] sets the mode of the whole terminal.
func rawScreen(*os.File) (restore func()) { return func() {} }

// ctrlZEnds is whether package os takes Ctrl-Z for the end of the input.
const ctrlZEnds = false
