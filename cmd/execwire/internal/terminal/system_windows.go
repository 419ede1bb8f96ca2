package terminal

import (
	"os"
	"syscall"
)

// handled are the signals that are handled beside those of Unignored: SIGINT is Ctrl-C and
// Ctrl-Break, SIGTERM the end of the console, of the user's session or of the system.
var handled = []os.Signal{syscall.SIGTERM}
