package listen

import (
	"errors"
	"sync/atomic"
)

// preAuthConn is a connection that must be authenticated. Until then the bytes
// read are limited: gRPC reads whole requests, of many calls at once, before it
// authenticates.
type preAuthConn struct {
	*limitedConn
	authenticated atomic.Bool

	limit, read int // limit and count before authentication; used by the reading goroutine
}

var errUnauthenticatedLimit = errors.New("too many bytes were received before authentication")

// Read implements net.Conn.
func (c *preAuthConn) Read(p []byte) (int, error) {
	if c.authenticated.Load() {
		return c.limitedConn.Read(p)
	}
	if c.read >= c.limit {
		return 0, errUnauthenticatedLimit
	}
	n, err := c.limitedConn.Read(p)
	c.read += n
	return n, err
}

func (c *preAuthConn) admission() Admission { return Admission{conn: c.limitedConn, preAuth: c} }

// Admission controls the limits of the connection that an AuthInfo belongs to.
// The zero value belongs to no connection. All methods may be called
// concurrently.
type Admission struct {
	conn    *limitedConn
	preAuth *preAuthConn // nil if unauthenticated bytes are not limited
}

// Begin records that a request was received: closing the listener no longer
// closes the connection.
func (a Admission) Begin() {
	if a.conn != nil {
		a.conn.requested.Store(true)
	}
}

// Admit records that a request of the principal was authenticated: the connection
// is no longer limited in bytes, and counts against the principal until it is
// closed or evicted. Further calls are harmless and do not change the principal.
// The error is an [*auth.Error] of [auth.KindTooManyConnections] if the limit is
// reached.
func (a Admission) Admit(principal string) error {
	if a.conn == nil {
		return nil
	}
	a.Begin()
	if a.preAuth != nil {
		a.preAuth.authenticated.Store(true)
	}
	return a.conn.limiter.admit(a.conn, principal)
}

// Admitted reports whether the connection is admitted, or needs no admission.
func (a Admission) Admitted() bool { return a.conn == nil || a.conn.admitted.Load() }

// Use marks the connection as in use until end is called, which may be repeated:
// idle connections of a principal are evicted first. evict is called with an
// [*auth.Error] of [auth.KindTooManyConnections] when the connection is evicted;
// it must not block, may be called after end, and may be nil. An evicted
// connection is otherwise left open until it is the oldest pending one beyond the
// limit.
func (a Admission) Use(evict func(error)) (end func()) {
	return a.addUse(&connUse{evict: evict, busy: true})
}

// OnEvict is [Admission.Use] without marking the connection as in use.
func (a Admission) OnEvict(evict func(error)) (stop func()) {
	return a.addUse(&connUse{evict: evict})
}

func (a Admission) addUse(u *connUse) (end func()) {
	if a.conn == nil {
		return func() {}
	}
	return a.conn.addUse(u)
}
