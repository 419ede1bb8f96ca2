//go:build unix

package syserr

import "syscall"

var (
	refused    = []syscall.Errno{syscall.ECONNREFUSED}
	inUse      = []syscall.Errno{syscall.EADDRINUSE}
	reset      = []syscall.Errno{syscall.ECONNRESET}
	lost       = []syscall.Errno{syscall.ECONNABORTED, syscall.EAGAIN} // EAGAIN: of a connect to a unix socket
	brokenPipe = []syscall.Errno{syscall.EPIPE}
)
