//go:build unix

package terminal

import (
	"os"
	"syscall"
	"time"
)

// handled are the signals that are handled beside those of Unignored. The terminal may have
// been resized while this program was stopped (SIGCONT). SIGPIPE is handled, not ignored,
// because processes would inherit that: a write to a pipe without a reader is then an error
// instead of the end.
var handled = []os.Signal{syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGWINCH, syscall.SIGCONT, syscall.SIGPIPE}

// isResize reports whether the terminal may have another size.
func isResize(sig syscall.Signal) bool { return sig == syscall.SIGWINCH || sig == syscall.SIGCONT }

// sizeInterval is 0: a signal tells that the terminal was resized.
const sizeInterval = time.Duration(0)
