//go:build unix

package wsconn

import (
	"errors"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// tryWriter returns a function that writes as much as a socket takes without waiting; nil
// if conn is not one.
func tryWriter(conn net.Conn) func([]byte) (int, error) {
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return nil
	}
	return func(b []byte) (n int, err error) {
		closed := raw.Write(func(fd uintptr) bool {
			n, err = unix.Write(int(fd), b)
			return true
		})
		if err == unix.EAGAIN || err == unix.EINTR {
			err = nil
		}
		return max(n, 0), errors.Join(closed, err)
	}
}
