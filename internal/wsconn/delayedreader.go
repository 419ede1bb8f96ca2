package wsconn

import (
	"net"
	"sync"
)

// delayedReader is a connection on which reads wait for the first write.
// Otherwise the HTTP client logs unsolicited data from servers of other protocols
// that send first, without naming the server.
type delayedReader struct {
	net.Conn
	wrote chan struct{} // closed by the first write or Close
	once  sync.Once
}

func newDelayedReader(conn net.Conn) *delayedReader {
	return &delayedReader{Conn: conn, wrote: make(chan struct{})}
}

// Read implements net.Conn.
func (c *delayedReader) Read(p []byte) (int, error) {
	<-c.wrote
	return c.Conn.Read(p)
}

// Write implements net.Conn.
func (c *delayedReader) Write(p []byte) (int, error) {
	c.release()
	return c.Conn.Write(p)
}

// Close implements net.Conn.
func (c *delayedReader) Close() error {
	c.release()
	return c.Conn.Close()
}

func (c *delayedReader) release() { c.once.Do(func() { close(c.wrote) }) }
