package syserr

import (
	"syscall"

	"golang.org/x/sys/windows"
)

// The constants of package syscall are of errors that package client makes.
var (
	refused    = []syscall.Errno{windows.WSAECONNREFUSED, syscall.ECONNREFUSED}
	inUse      = []syscall.Errno{windows.WSAEADDRINUSE, windows.WSAEACCES}
	reset      = []syscall.Errno{windows.WSAECONNRESET, windows.WSAENETRESET, windows.ERROR_NETNAME_DELETED, syscall.ECONNRESET}
	lost       = []syscall.Errno{windows.WSAECONNABORTED, windows.WSAESHUTDOWN, windows.WSAEDISCON}
	brokenPipe = []syscall.Errno{windows.ERROR_BROKEN_PIPE, windows.ERROR_NO_DATA, windows.ERROR_PIPE_NOT_CONNECTED, syscall.EPIPE}
)
