package wsconn

import (
	"net"
	"sync"
)

// askingConn is a connection on which nothing is received before something was sent.
// The HTTP client logs what comes before, from servers that speak first because they
// speak something else, and cannot say what it was.
type askingConn struct {
	net.Conn
	asked chan struct{} // closed with the first write, or the end
	once  sync.Once
}

func newAskingConn(conn net.Conn) *askingConn {
	return &askingConn{Conn: conn, asked: make(chan struct{})}
}

// Read implements net.Conn.
func (c *askingConn) Read(p []byte) (int, error) {
	<-c.asked
	return c.Conn.Read(p)
}

// Write implements net.Conn.
func (c *askingConn) Write(p []byte) (int, error) {
	c.ask()
	return c.Conn.Write(p)
}

// Close implements net.Conn.
func (c *askingConn) Close() error {
	c.ask()
	return c.Conn.Close()
}

func (c *askingConn) ask() { c.once.Do(func() { close(c.asked) }) }
