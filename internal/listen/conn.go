package listen

import (
	"container/list"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/auth"
)

// limitedConn is a connection that its limiter counts until it is closed.
type limitedConn struct {
	net.Conn
	limiter   *limiter
	peer      auth.Peer    // on loopback, if known
	userError error        // why the user is not accepted there without a credential
	peerError func() error // userError, or why the process is not accepted

	admitted  atomic.Bool // written under limiter.mu
	requested atomic.Bool // a request was received
	isBounded atomic.Bool // no request was authenticated yet, which bounds what is read
	// bound is how many bytes may be read while isBounded: gRPC reads whole requests,
	// of many calls at once, before it authenticates. read counts them; only the
	// goroutine that reads uses it.
	bound, read int

	// Guarded by limiter.mu.
	owner   *principalConns       // nil unless admitted
	busy    int                   // number of busy uses
	uses    map[*connUse]struct{} // notified on eviction
	evicted bool                  // it was admitted, and evicted
	list    *list.List            // the list that contains it
	element *list.Element         // there
	removed bool                  // no longer counted
}

// connUse is a use of a connection.
type connUse struct {
	evict func(error) // may be nil
	busy  bool
}

// evictions returns the functions to be called on eviction. limiter.mu is held.
func (c *limitedConn) evictions() (evictions []func(error)) {
	for u := range c.uses {
		if u.evict != nil {
			evictions = append(evictions, u.evict)
		}
	}
	return evictions
}

// addUse registers a use of the connection until end is called.
func (c *limitedConn) addUse(u *connUse) (end func()) {
	c.limiter.mu.Lock()
	evicted := c.evicted
	if c.uses == nil {
		c.uses = make(map[*connUse]struct{})
	}
	c.uses[u] = struct{}{}
	c.countUse(u, 1)
	c.limiter.mu.Unlock()
	if evicted && u.evict != nil {
		u.evict(c.limiter.limitError("this connection has lost its place to another"))
	}
	return sync.OnceFunc(func() {
		c.limiter.mu.Lock()
		defer c.limiter.mu.Unlock()
		delete(c.uses, u)
		c.countUse(u, -1)
	})
}

// countUse counts the begin or end of a use. limiter.mu is held.
func (c *limitedConn) countUse(u *connUse, change int) {
	if !u.busy {
		return
	}
	c.busy += change
	if c.owner != nil {
		c.limiter.relist(c)
	}
}

// identify returns conn with what the kernel knows about its peer, if that is on
// loopback.
func (l *limiter) identify(conn net.Conn) *limitedConn {
	c := &limitedConn{Conn: conn, limiter: l}
	c.peerError = sync.OnceValue(c.checkPeer)
	if tcp, ok := conn.(*net.TCPConn); ok && isLoopback(tcp.LocalAddr()) && isLoopback(tcp.RemoteAddr()) {
		var err error
		c.peer, err = auth.LoopbackPeer(tcp)
		c.userError = l.users.Check(c.peer, err)
	}
	return c
}

// checkPeer returns why the process at the other end is not accepted without a
// credential.
func (c *limitedConn) checkPeer() error {
	if c.userError != nil || c.limiter.confined == nil {
		return c.userError
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
	return c.limiter.confined(c.peer, ended)
}

var errUnauthenticatedLimit = errors.New("too many bytes were received before authentication")

// Read implements net.Conn.
func (c *limitedConn) Read(p []byte) (int, error) {
	if !c.isBounded.Load() {
		return c.Conn.Read(p)
	}
	if c.read >= c.bound {
		return 0, errUnauthenticatedLimit
	}
	n, err := c.Conn.Read(p)
	c.read += n
	return n, err
}

// Close implements net.Conn. Further calls are harmless.
func (c *limitedConn) Close() error {
	c.limiter.mu.Lock()
	c.limiter.remove(c)
	c.limiter.mu.Unlock()
	return c.Conn.Close()
}

// Left reports whether the peer has closed the connection or its sending side,
// even if unread data is left. For a TCP connection with full buffers that is
// known only minutes later, when the kernel gives up sending.
func (c *limitedConn) Left() bool {
	system, ok := c.Conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := system.SyscallConn()
	left := false
	if err == nil {
		err = raw.Control(func(fd uintptr) {
			fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
			n, err := unix.Poll(fds, 0)
			left = err == nil && n > 0
		})
	}
	return left || err != nil // closed here
}

// CloseWrite closes the sending side, if the connection supports it.
func (c *limitedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
