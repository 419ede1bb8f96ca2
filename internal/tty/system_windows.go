package tty

import (
	"os"
	"sync"
	"time"

	"golang.org/x/sys/windows"
)

// sizeInterval is how often to look whether the console was resized: no signal tells.
const sizeInterval = 250 * time.Millisecond

// OnResize calls do, from another goroutine, when the console may have another size. stop
// waits for a call in progress.
func OnResize(do func()) (stop func()) {
	ended := make(chan struct{})
	var loop sync.WaitGroup
	loop.Go(func() {
		ticker := time.NewTicker(sizeInterval)
		defer ticker.Stop()
		for {
			select {
			case <-ended:
				return
			case <-ticker.C:
				do()
			}
		}
	})
	return func() {
		close(ended)
		loop.Wait()
	}
}

// rawScreen makes a console interpret the escape sequences of programs, and a line feed move
// the cursor down only.
func rawScreen(out *os.File) (restore func()) {
	console := windows.Handle(out.Fd())
	var mode uint32
	if windows.GetConsoleMode(console, &mode) != nil { // it is a file or a pipe
		return func() {}
	}
	raw := mode | windows.ENABLE_PROCESSED_OUTPUT | windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING | windows.DISABLE_NEWLINE_AUTO_RETURN
	if windows.SetConsoleMode(console, raw) != nil { // it cannot: before Windows 10
		return func() {}
	}
	return func() { _ = windows.SetConsoleMode(console, mode) }
}

// ctrlZEnds is whether package os takes Ctrl-Z for the end of the input.
const ctrlZEnds = true
