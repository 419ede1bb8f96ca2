package listen

import "net"

// Counted returns conn as a ws listener without authentication would accept it.
func Counted(conn net.Conn) net.Conn {
	l := newLimiter(URL{}, Options{})
	c := l.identify(conn)
	l.add(c)
	return c
}

// RetryAccepts is the accept wrapper of all listeners.
var RetryAccepts = retryAccepts

// LockName is the lock file of a path.
var LockName = lockName
