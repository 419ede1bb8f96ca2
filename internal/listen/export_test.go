package listen

import "net"

// Counted is conn as a ws door without authentication would have accepted it.
func Counted(conn net.Conn) net.Conn {
	l := newLimiter(URL{}, Locks{})
	c := l.identify(conn)
	l.add(c)
	return c
}

// RetryAccepts is what every listener of this package accepts through.
var RetryAccepts = retryAccepts

// LockName is the lock file for a path.
var LockName = lockName
