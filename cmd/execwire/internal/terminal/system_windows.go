package terminal

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/windows"
)

// handled are the signals that are handled beside those of Unignored: SIGINT is Ctrl-C and
// Ctrl-Break, SIGTERM the end of the console, of the user's session or of the system.
var handled = []os.Signal{syscall.SIGTERM}

// isResize returns false: there is no signal.
func isResize(syscall.Signal) bool { return false }

// sizeInterval is how often to look whether the console was resized.
const sizeInterval = 250 * time.Millisecond

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
