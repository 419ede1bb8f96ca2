package listen

import (
	"container/list"
	"net"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/auth"
)

// limitedConn is a connection that counts until it is closed.
type limitedConn struct {
	net.Conn
	limiter *limiter
	peer    auth.Peer    // on loopback, if it is known
	refused error        // why the peer's user is not accepted there without a credential
	refusal func() error // that, or why its process is not

	placed atomic.Bool // it has a place; written under limiter.mu
	begun  atomic.Bool // a request has come

	// Guarded by limiter.mu.
	holder  *holder           // who has its place; nil if it has none
	uses    int               // those of watchers that are in use
	watch   map[*use]struct{} // that are told when it loses its place
	evicted bool              // it lost its place and has none since
	order   *list.List        // where it is listed
	element *list.Element     // there
	gone    bool              // it does not count any more
}

// use is something that a connection is used for.
type use struct {
	evict func(error) // nil is not called
	busy  bool
}

// evictions returns what is called when the connection loses its place. limiter.mu is
// held.
func (c *limitedConn) evictions() (evictions []func(error)) {
	for u := range c.watch {
		if u.evict != nil {
			evictions = append(evictions, u.evict)
		}
	}
	return evictions
}

// begin notes a use of the connection until end is called.
func (c *limitedConn) begin(u *use) (end func()) {
	c.limiter.mu.Lock()
	evicted := c.evicted
	if c.watch == nil {
		c.watch = make(map[*use]struct{})
	}
	c.watch[u] = struct{}{}
	c.count(u, 1)
	c.limiter.mu.Unlock()
	if evicted && u.evict != nil {
		u.evict(c.limiter.reached("this connection has lost its place to another"))
	}
	return sync.OnceFunc(func() {
		c.limiter.mu.Lock()
		defer c.limiter.mu.Unlock()
		delete(c.watch, u)
		c.count(u, -1)
	})
}

// count counts a use that begins or ends. limiter.mu is held.
func (c *limitedConn) count(u *use, change int) {
	if !u.busy {
		return
	}
	c.uses += change
	if c.holder != nil {
		c.limiter.sort(c)
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
// credential.
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
	return c.limiter.confined(c.peer, ended)
}

// Close implements net.Conn. Closing again is harmless.
func (c *limitedConn) Close() error {
	c.limiter.mu.Lock()
	c.limiter.remove(c)
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
