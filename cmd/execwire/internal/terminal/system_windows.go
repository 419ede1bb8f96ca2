package terminal

import (
	"os"
	"syscall"
	"time"
)

// handled are the signals that are handled beside those of Unignored: SIGINT is Ctrl-C and
// Ctrl-Break, SIGTERM the end of the console, of the user's session or of the system.
var handled = []os.Signal{syscall.SIGTERM}

// isResize returns false: there is no signal.
func isResize(syscall.Signal) bool { return false }

// sizeInterval is how often to look whether the console was resized.
const sizeInterval = 250 * time.Millisecond
