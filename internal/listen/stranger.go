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

func (c *strangerConn) admission() Admission { return Admission{counted: c.limitedConn, bounded: c} }

// Admission says whether somebody was let in on a connection, of the AuthInfo
// that it is in, and what it is used for. The zero value is that of one that no
// listener counts. All methods may be called concurrently.
type Admission struct {
	counted *limitedConn
	bounded *strangerConn // nil if it may send as much as it likes
}

// Begin notes that a request has come: closing the listener does not close the
// connection any more.
func (a Admission) Begin() {
	if a.counted != nil {
		a.counted.begun.Store(true)
	}
}

// Admit notes that a request of the principal was authenticated: the connection may
// send as much as it likes, and has a place among those of the principal until it is
// closed or evicted. Calling it again is harmless, and does not change the principal.
// An [*auth.Error] of [auth.KindTooManyConnections] says that there is no place.
func (a Admission) Admit(principal string) error {
	if a.counted == nil {
		return nil
	}
	a.Begin()
	if a.bounded != nil {
		a.bounded.admitted.Store(true)
	}
	return a.counted.limiter.admit(a.counted, principal)
}

// Admitted reports whether the connection has a place, or needs none.
func (a Admission) Admitted() bool { return a.counted == nil || a.counted.placed.Load() }

// Use notes that the connection is in use until end is called, which may be called
// again: of its principal's connections those that are not in use are evicted first.
// evict gets the error, an [*auth.Error] of [auth.KindTooManyConnections], when the
// connection loses its place; it must not block, may be called when end was, and may
// be nil. Nothing else is done to the connection before it is the oldest of those that
// have no place, and one too many.
func (a Admission) Use(evict func(error)) (end func()) {
	return a.watch(&use{evict: evict, busy: true})
}

// OnEvict is [Admission.Use] without that the connection is in use.
func (a Admission) OnEvict(evict func(error)) (stop func()) {
	return a.watch(&use{evict: evict})
}

func (a Admission) watch(u *use) (end func()) {
	if a.counted == nil {
		return func() {}
	}
	return a.counted.begin(u)
}
