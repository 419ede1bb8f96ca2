//go:build unix

package terminal

import (
	"os"
	"syscall"
)

// handled are the signals that are handled beside those of Unignored. SIGPIPE is
// handled, not ignored, because processes would inherit that: a write to a pipe without a
// reader is then an error instead of the end.
var handled = []os.Signal{syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGPIPE}
