package listen

import (
	"container/list"
	"net"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/auth"
)

// limiter bounds the connections of one door. When there are as many as may be,
// the next takes the place of a stranger, the one that has been here longest;
// when there is none, it is closed at once.
type limiter struct {
	users    auth.LoopbackUsers
	confined func(auth.Peer, func() bool) error // nil: none is
	most     int                                // 0: no limit
	refused  func()                             // is told of each that had no place; must not block

	mu        sync.Mutex
	here      int        // guarded by mu
	strangers *list.List // guarded by mu; of *limitedConn, oldest first
}

func newLimiter(u URL, locks Locks) *limiter {
	l := &limiter{users: locks.LoopbackUsers, confined: locks.Confined, most: locks.Connections, refused: func() {}, strangers: list.New()}
	if locks.Full != nil {
		l.refused = func() { locks.Full(u) }
	}
	return l
}

// limitedConn is a connection that counts until it is closed.
type limitedConn struct {
	net.Conn
	limiter *limiter
	peer    auth.Peer     // on loopback, if it is known
	refused error         // why the peer's user is not accepted there without a credential
	refusal func() error  // that, or why its process is not
	element *list.Element // guarded by limiter.mu; in strangers
	gone    bool          // guarded by limiter.mu
}

// accept waits for a connection that has a place. On a door of strangers every
// one is a stranger until stays is called, and so is one on loopback anywhere whose
// peer is not accepted.
func (l *limiter) accept(next func() (net.Conn, error), strangers bool) (*limitedConn, error) {
	for {
		conn, err := next()
		if err != nil {
			return nil, err
		}
		c, left := l.place(l.identify(conn), strangers)
		if left != nil {
			_ = left.Close()
			l.refused()
		}
		if c != nil {
			return c, nil
		}
	}
}

// identify returns conn with what the kernel knows about its other end, if that is
// on loopback.
func (l *limiter) identify(conn net.Conn) *limitedConn {
	c := &limitedConn{Conn: conn, limiter: l}
	c.refusal = sync.OnceValue(c.judge)
	if tcp, ok := conn.(*net.TCPConn); ok && isLoopback(tcp.LocalAddr()) && isLoopback(tcp.RemoteAddr()) {
		var err error
		c.peer, err = auth.LoopbackPeer(tcp)
		c.refused = l.users.Check(c.peer, err)
	}
	return c
}

// judge returns why the process at the other end is not accepted without a
// credential. If it is not, the connection gives way to others as those of
// strangers do.
func (c *limitedConn) judge() error {
	if c.refused != nil || c.limiter.confined == nil {
		return c.refused
	}
	ended := func() bool { return false }
	switch conn := c.Conn.(type) {
	case *net.UnixConn:
		ended = func() bool { return auth.PeerEnded(conn) }
	default:
		if !isLoopback(conn.LocalAddr()) || !isLoopback(conn.RemoteAddr()) {
			return nil
		}
	}
	err := c.limiter.confined(c.peer, ended)
	if err != nil {
		c.limiter.mayLeave(c)
	}
	return err
}

// mayLeave makes c a stranger.
func (l *limiter) mayLeave(c *limitedConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !c.gone && c.element == nil {
		c.element = l.strangers.PushBack(c)
	}
}

// place returns conn with its place, or nil, and the connection that has to be
// closed for want of one.
func (l *limiter) place(conn *limitedConn, stranger bool) (c *limitedConn, left net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.most > 0 && l.here >= l.most {
		oldest := l.strangers.Front()
		if oldest == nil {
			return nil, conn.Conn
		}
		out := oldest.Value.(*limitedConn)
		l.drop(out)
		left = out
	}
	l.here++
	if stranger || conn.refused != nil {
		conn.element = l.strangers.PushBack(conn)
	}
	return conn, left
}

// drop gives the place of c up. mu is held.
func (l *limiter) drop(c *limitedConn) {
	if c.gone {
		return
	}
	c.gone = true
	l.here--
	l.known(c)
}

// known takes c off the strangers. mu is held.
func (l *limiter) known(c *limitedConn) {
	if c.element != nil {
		l.strangers.Remove(c.element)
		c.element = nil
	}
}

// stays says that c is nobody's to be put out for any more.
func (c *limitedConn) stays() {
	c.limiter.mu.Lock()
	defer c.limiter.mu.Unlock()
	c.limiter.known(c)
}

// Close implements net.Conn. Closing again is harmless.
func (c *limitedConn) Close() error {
	c.limiter.mu.Lock()
	c.limiter.drop(c)
	c.limiter.mu.Unlock()
	return c.Conn.Close()
}

// Left reports whether the other end has closed the connection, or says no more, also
// as long as what it has said was not read. Of a TCP connection whose buffers are full
// the system tells it minutes later, when it has given up delivering the rest.
func (c *limitedConn) Left() bool {
	system, ok := c.Conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := system.SyscallConn()
	left := false
	if err == nil {
		err = raw.Control(func(fd uintptr) {
			asked := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
			n, err := unix.Poll(asked, 0)
			left = err == nil && n > 0
		})
	}
	return left || err != nil // closed here
}

// CloseWrite tells the other end that nothing more comes, if connections of this
// kind can, and does nothing otherwise.
func (c *limitedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
