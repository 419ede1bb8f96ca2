package listen

import (
	"io"
	"net"
	"sync"
)

// Queue is a listener whose connections are delivered to it. It holds none: Deliver
// blocks until the server accepts. All methods may be called concurrently.
type Queue struct {
	conns  chan net.Conn
	closed chan struct{}
	close  func()
}

// NewQueue returns an open queue.
func NewQueue() *Queue {
	q := &Queue{conns: make(chan net.Conn), closed: make(chan struct{})}
	q.close = sync.OnceFunc(func() { close(q.closed) })
	return q
}

// Deliver passes a connection to Accept, and reports whether it was accepted. It
// blocks until then, or until the queue is closed. The caller closes a connection
// that was not accepted.
func (q *Queue) Deliver(conn net.Conn) bool {
	select {
	case q.conns <- conn:
		return true
	case <-q.closed:
		return false
	}
}

// Closed returns a channel that is closed by Close.
func (q *Queue) Closed() <-chan struct{} { return q.closed }

// Accept implements net.Listener. Its only error is [net.ErrClosed], after Close.
func (q *Queue) Accept() (net.Conn, error) {
	select {
	case conn := <-q.conns:
		return conn, nil
	case <-q.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. Further calls are harmless.
func (q *Queue) Close() error {
	q.close()
	return nil
}

// Addr implements net.Listener. The address is that of no listener.
func (q *Queue) Addr() net.Addr { return queueAddr{} }

// queueAddr is the address of a queue.
type queueAddr struct{}

// Network implements net.Addr.
func (queueAddr) Network() string { return "queue" }

// String implements net.Addr.
func (queueAddr) String() string { return "queue" }

// PutBack returns conn, whose Read returns the bytes of first before it reads on.
func PutBack(conn net.Conn, first []byte) net.Conn { return &putBackConn{Conn: conn, first: first} }

// putBackConn is a connection whose first bytes were read before its protocol was
// known.
type putBackConn struct {
	net.Conn
	first []byte // used by the goroutine that reads
}

// Read implements net.Conn.
func (c *putBackConn) Read(p []byte) (int, error) {
	if len(c.first) > 0 {
		n := copy(p, c.first)
		if c.first = c.first[n:]; len(c.first) == 0 {
			c.first = nil
		}
		return n, nil
	}
	return c.Conn.Read(p)
}

// NetConn returns the underlying connection.
func (c *putBackConn) NetConn() net.Conn { return c.Conn }

// ReadFrom implements io.ReaderFrom, so that files are sent without copying them.
func (c *putBackConn) ReadFrom(r io.Reader) (int64, error) { return io.Copy(c.Conn, r) }

// CloseWrite closes the sending side, if the connection supports it.
func (c *putBackConn) CloseWrite() error { return closeWrite(c.Conn) }

// Left is [limitedConn.Left] of the underlying connection.
func (c *putBackConn) Left() bool {
	inner, ok := c.Conn.(interface{ Left() bool })
	return ok && inner.Left()
}
