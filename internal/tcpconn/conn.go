// Package tcpconn tells the end of a TCP connection's direction from a reset.
package tcpconn

import (
	"errors"
	"io"
	"net"
	"sync"

	"github.com/execwire/execwire/internal/syserr"
)

// Conn is a TCP connection of which Read returns io.EOF only if the peer has ended its direction. The
// system reports a reset once: after Write has returned it, a read of a [net.TCPConn] is an end of
// file. All methods may be called concurrently.
type Conn struct {
	net.Conn // hides the other methods of tcp, which read and write, too
	tcp      *net.TCPConn

	writing sync.Mutex // held during Write
	failure error      // guarded by writing; of the first Write that failed
}

// New returns the connection. tcp must not be used any more.
func New(tcp *net.TCPConn) *Conn { return &Conn{Conn: tcp, tcp: tcp} }

// Read implements net.Conn.
func (c *Conn) Read(p []byte) (int, error) {
	n, err := c.tcp.Read(p)
	if errors.Is(err, io.EOF) {
		err = c.end()
	}
	return n, err
}

// end returns what an end of file means.
func (c *Conn) end() error {
	if !c.lockFailure() {
		return io.EOF
	}
	defer c.writing.Unlock()
	if c.failure == nil || syserr.IsBrokenPipe(c.failure) { // EPIPE: reset after the peer had ended its direction
		return io.EOF
	}
	return c.failure
}

// Write implements net.Conn.
func (c *Conn) Write(p []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	n, err := c.tcp.Write(p)
	if c.failure == nil {
		c.failure = err
	}
	return n, err
}

// CloseWrite ends this direction, as that of [net.TCPConn].
func (c *Conn) CloseWrite() error { return c.tcp.CloseWrite() }

// SetLinger sets what Close does, as that of [net.TCPConn].
func (c *Conn) SetLinger(seconds int) error { return c.tcp.SetLinger(seconds) }
