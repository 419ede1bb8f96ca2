//go:build unix

package jsonrpc

import (
	"io"
	"syscall"

	"golang.org/x/sys/unix"
)

// isAbandoned reports whether out is a file without a reader.
func isAbandoned(out io.Writer) bool {
	file, ok := out.(syscall.Conn)
	if !ok {
		return false
	}
	conn, err := file.SyscallConn()
	if err != nil {
		return true
	}
	abandoned := false
	err = conn.Control(func(fd uintptr) {
		about := []unix.PollFd{{Fd: int32(fd)}} // errors and hang-up need no request
		n, err := unix.Poll(about, 0)
		abandoned = err == nil && n > 0
	})
	return abandoned || err != nil
}
