package operations

import (
	"context"
	"net"
	"runtime"

	"golang.org/x/sys/unix"
)

// dialAs returns what connects by a socket of another user.
func dialAs(uid int) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		type result struct {
			conn net.Conn
			err  error
		}
		dialled := make(chan result, 1)
		go func() {
			// A socket belongs to the file system user of the thread that makes it.
			// The thread ends with the goroutine.
			runtime.LockOSThread()
			_ = unix.Setfsuid(uid)
			conn, err := new(net.Dialer).DialContext(ctx, network, address)
			dialled <- result{conn, err}
		}()
		made := <-dialled
		return made.conn, made.err
	}
}
