package daemon

import (
	"net"
	"sync"
)

// relayAddr is the address of a stream of the relay.
type relayAddr struct{ stream string }

// Network implements net.Addr.
func (relayAddr) Network() string { return "relay" }

// String implements net.Addr.
func (a relayAddr) String() string { return "relay " + a.stream }

// relayedConn is a gRPC connection through the relay. Its first bytes were received
// before its protocol was known.
type relayedConn struct {
	net.Conn
	stream string
	first  []byte // used by the goroutine that reads

	begun chan struct{} // closed when a request was received or the connection is closed
	begin func()        // closes begun; may be called again
}

func newRelayedConn(conn net.Conn, stream string, first []byte) *relayedConn {
	begun := make(chan struct{})
	return &relayedConn{Conn: conn, stream: stream, first: first, begun: begun, begin: sync.OnceFunc(func() { close(begun) })}
}

// Close implements net.Conn.
func (c *relayedConn) Close() error {
	c.begin()
	return c.Conn.Close()
}

// Read implements net.Conn.
func (c *relayedConn) Read(p []byte) (int, error) {
	if len(c.first) > 0 {
		n := copy(p, c.first)
		c.first = c.first[n:]
		return n, nil
	}
	return c.Conn.Read(p)
}

// RemoteAddr implements net.Conn.
func (c *relayedConn) RemoteAddr() net.Addr { return relayAddr{c.stream} }

// relayListener passes connections of the relay to the gRPC server.
type relayListener struct {
	conns  chan net.Conn
	closed chan struct{}
	close  func()
}

func newRelayListener() *relayListener {
	l := &relayListener{conns: make(chan net.Conn), closed: make(chan struct{})}
	l.close = sync.OnceFunc(func() { close(l.closed) })
	return l
}

// deliver passes a connection to Accept, and reports whether it was accepted. It
// blocks until then.
func (l *relayListener) deliver(conn net.Conn) bool {
	select {
	case l.conns <- conn:
		return true
	case <-l.closed:
		return false
	}
}

// Accept implements net.Listener.
func (l *relayListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *relayListener) Close() error {
	l.close()
	return nil
}

// Addr implements net.Listener.
func (l *relayListener) Addr() net.Addr { return relayAddr{"listener"} }
