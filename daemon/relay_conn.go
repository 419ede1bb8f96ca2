package daemon

import (
	"net"
	"sync"

	"github.com/execwire/execwire/internal/listen"
)

// relayAddr is the address of a stream of the relay.
type relayAddr struct{ stream string }

// Network implements net.Addr.
func (relayAddr) Network() string { return "relay" }

// String implements net.Addr.
func (a relayAddr) String() string { return "relay " + a.stream }

// relayedConn is a gRPC connection through the relay.
type relayedConn struct {
	net.Conn
	stream string

	begun chan struct{} // closed when a request was received or the connection is closed
	begin func()        // closes begun; may be called again
}

// newRelayedConn returns the connection conn, of which first was received before its
// protocol was known.
func newRelayedConn(conn net.Conn, stream string, first []byte) *relayedConn {
	begun := make(chan struct{})
	return &relayedConn{Conn: listen.PutBack(conn, first), stream: stream, begun: begun, begin: sync.OnceFunc(func() { close(begun) })}
}

// Close implements net.Conn.
func (c *relayedConn) Close() error {
	c.begin()
	return c.Conn.Close()
}

// RemoteAddr implements net.Conn.
func (c *relayedConn) RemoteAddr() net.Addr { return relayAddr{c.stream} }
