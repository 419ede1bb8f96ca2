package listen

import (
	"container/list"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/credentials"

	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/confinement"
)

// limitedConn is a connection that its limiter counts until it is closed.
type limitedConn struct {
	net.Conn
	limiter   *limiter
	peer      auth.Peer    // on this host, if known
	unknown   error        // why the peer of a unix socket is not known
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
	uses    map[*connUse]struct{} // notified when evicted is set
	evicted bool                  // it lost its admission, or was closed for another one
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
	switch conn := conn.(type) {
	case *net.UnixConn:
		c.peer, c.unknown = auth.UnixPeer(conn)
	case *net.TCPConn:
		if isLoopback(conn.LocalAddr()) && isLoopback(conn.RemoteAddr()) {
			var err error
			c.peer, err = auth.LoopbackPeer(conn)
			c.userError = l.users.Check(c.peer, err)
		}
	}
	return c
}

// authInfo returns the AuthInfo of a connection without TLS.
func (c *limitedConn) authInfo() (AuthInfo, error) {
	info := AuthInfo{Admission: Admission{c}}
	if _, ok := c.Conn.(*net.UnixConn); ok {
		info.SecurityLevel, info.Peer = credentials.PrivacyAndIntegrity, &c.peer
		return info, c.unknown
	}
	info.SecurityLevel = credentials.NoSecurity
	info.Loopback = isLoopback(c.LocalAddr()) && isLoopback(c.RemoteAddr())
	return info, nil
}

// boundTo bounds how many bytes may be read before a request is authenticated. It is
// called by the goroutine that reads.
func (c *limitedConn) boundTo(bytes int) {
	c.bound = bytes
	c.isBounded.Store(true)
}

// checkPeer returns why the process at the other end is not accepted without a
// credential.
func (c *limitedConn) checkPeer() error {
	if c.userError != nil || c.limiter.confined == nil {
		return c.userError
	}
	p := confinement.Peer{PID: int(c.peer.PID), UID: c.peer.UID, Socket: c.peer.Socket, Cgroup: c.peer.Cgroup, Unknown: c.peer.Unknown}
	switch conn := c.Conn.(type) {
	case *net.UnixConn:
		p.Ended = func() bool { return auth.PeerEnded(conn) }
	case *net.TCPConn:
		if !isLoopback(conn.LocalAddr()) || !isLoopback(conn.RemoteAddr()) {
			return nil
		}
		p.Ended = func() bool { return auth.LoopbackPeerEnded(conn, c.peer) }
	}
	err := c.limiter.confined(p)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, confinement.ErrConfined):
		return refusedPeer("a confined process is not accepted without a token: it could start processes that are not confined")
	}
	return refusedPeer(fmt.Sprintf("this process is not accepted without a token: confined processes with the network were started here, "+
		"and it cannot be found out whether this is one of them (%v); show a token, or use a unix socket", err))
}

func refusedPeer(text string) error {
	return &auth.Error{Kind: auth.KindPeerRefused, Subject: "peer on this host", Err: errors.New(text), ForCaller: text}
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
func (c *limitedConn) CloseWrite() error { return closeWrite(c.Conn) }

func closeWrite(conn net.Conn) error {
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// copyBuffers has the buffers of copies to connections that cannot send a file themselves:
// those of unix sockets, to which net/http copies with buffers of its own.
var copyBuffers = sync.Pool{New: func() any { return new([64 << 10]byte) }}

// ReadFrom implements io.ReaderFrom, so that files are sent without copying them.
func (c *limitedConn) ReadFrom(r io.Reader) (int64, error) {
	if to, ok := c.Conn.(io.ReaderFrom); ok {
		return to.ReadFrom(r)
	}
	buffer := copyBuffers.Get().(*[64 << 10]byte)
	defer copyBuffers.Put(buffer)
	return io.CopyBuffer(struct{ io.Writer }{c.Conn}, r, buffer[:])
}

// NetConn returns the underlying connection, for setting socket options.
func (c *limitedConn) NetConn() net.Conn { return c.Conn }
