package listen

import (
	"errors"
	"sync/atomic"
)

// strangerConn is a connection on which somebody has to be let in. What is read
// of it before that is bounded: gRPC reads the whole request of a call before it
// asks who makes it, of many calls at once.
type strangerConn struct {
	*limitedConn
	admitted atomic.Bool

	most, read int // bytes before admission; used only by the one that reads
}

var errUnadmitted = errors.New("too much was sent before anybody was let in")

// Read implements net.Conn.
func (c *strangerConn) Read(p []byte) (int, error) {
	if c.admitted.Load() {
		return c.limitedConn.Read(p)
	}
	if c.read >= c.most {
		return 0, errUnadmitted
	}
	n, err := c.limitedConn.Read(p)
	c.read += n
	return n, err
}

// Admission says whether somebody was let in on a connection, of the AuthInfo
// that it is in. The zero value is that of one where nobody has to be.
type Admission struct{ conn *strangerConn }

// Admit says that somebody was let in, so that the connection may send as much as
// it likes and keeps its place. It may be called concurrently and again.
func (a Admission) Admit() {
	if a.conn != nil {
		a.conn.stays()
		a.conn.admitted.Store(true)
	}
}

// Admitted reports whether somebody was let in, or need not be.
func (a Admission) Admitted() bool { return a.conn == nil || a.conn.admitted.Load() }
