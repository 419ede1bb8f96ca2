package listen

// Admission controls the limits of the connection that an AuthInfo belongs to.
// The zero value belongs to no connection. All methods may be called
// concurrently.
type Admission struct{ conn *limitedConn }

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
	a.conn.isBounded.Store(false)
	return a.conn.limiter.admit(a.conn, principal)
}

// Admitted reports whether the connection is admitted, or needs no admission.
func (a Admission) Admitted() bool { return a.conn == nil || a.conn.admitted.Load() }

// Use marks the connection as in use until end is called, which may be repeated:
// idle connections of a principal are evicted first. evict is called with an
// [*auth.Error] of [auth.KindTooManyConnections] when the connection is evicted, and
// when it is closed as the oldest pending one; it must not block, may be called again
// and after end, and may be nil. An evicted connection is otherwise left open until it
// is the oldest pending one beyond the limit.
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
