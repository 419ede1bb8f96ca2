package listen

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"syscall"

	"github.com/execwire/execwire/internal/auth"
)

// Listener is an open door. Its methods may be called concurrently. Accept retries
// whatever fails, so that its only error is [net.ErrClosed], after Close. Close also
// closes the connections on which no request has come; see [Admission.Begin].
type Listener interface {
	net.Listener
	// URL names the door as a client reaches it, with the port the kernel
	// chose.
	URL() URL
}

// Locks is what doors are secured with.
type Locks struct {
	// TLS is what grpcs and wss doors need; the others do without.
	TLS *TLS
	// Authenticated is whether callers are let in by what they show, so that a
	// grpcs door may be reached from beyond this host.
	Authenticated bool
	// WebsocketAuthenticated is the same of ws and wss doors.
	WebsocketAuthenticated bool
	// LoopbackUsers are those whose processes are accepted on loopback without a
	// credential. A connection of another is served until a call on it is refused.
	LoopbackUsers auth.LoopbackUsers
	// Confined returns why a process of this host is not accepted without a
	// credential because it is, or may be, confined; nil accepts it. ended reports
	// whether the process of a unix socket has ended, so that its PID may be
	// another's. It is called once for each connection, when [HostPeer.Refused] is,
	// concurrently, and may read /proc. A nil Confined accepts all.
	Confined func(p auth.Peer, ended func() bool) error
	// Unadmitted is how many bytes may come on one connection before somebody is
	// let in on it; a handshake counts. A connection that sends more is closed. It
	// is for doors with TLS, for those where callers are authenticated, and for
	// peers that LoopbackUsers does not accept.
	Unadmitted int
	// Connections is how many principals have of each listener at once, from the first
	// request that is authenticated; 0 is any number. Another one gets the place of
	// one of the principal that has the most; see [Admission.Admit]. There may be an
	// eighth more connections, and at least one, that have no place: the oldest of
	// them is closed for a new one.
	Connections int
	// Full is called with the listener for each connection that was closed, evicted or
	// refused a place for that, concurrently. It must not block; nil is not called.
	Full func(URL)
	// AcceptFailed gets the error of an accept that failed, for a want of descriptors
	// or memory perhaps, with what to do about it: at most once a minute for each
	// listener. The accept is retried. It is called concurrently and must not block;
	// nil is not called.
	AcceptFailed func(URL, error)
	// HandshakeFailed is told of clients that did not get through the handshake
	// of a wss door, but for those that were lost during it or left. It is called
	// concurrently and must not block; nil is not told.
	HandshakeFailed func(remote net.Addr, err error)
}

// acceptFailed is AcceptFailed of the listener u.
func (l Locks) acceptFailed(u URL) func(error) {
	if l.AcceptFailed == nil {
		return nil
	}
	return func(err error) { l.AcceptFailed(u, err) }
}

// Listen opens the door that u names. It may wait for another server that is
// opening or checking a socket in the same directory, until ctx ends and at
// most for 10 s; the listener itself does not depend on ctx. The error is an
// *[Error]; whatever made u, a door that the locks do not allow is not opened.
func Listen(ctx context.Context, u URL, locks Locks) (Listener, error) {
	switch u.Scheme {
	case SchemeGRPC:
		return listenGRPC(ctx, u, locks)
	case SchemeGRPCS:
		return listenGRPCS(ctx, u, locks)
	case SchemeUnix:
		return listenUnix(ctx, u, locks)
	case SchemeWS, SchemeWSS:
		return listenWebsocket(ctx, u, locks)
	case SchemeStdio:
		return nil, &Error{Kind: KindOff, URL: u.String(), Problem: "standard input and output are there already, and are no listener"}
	case SchemeOff:
		return nil, &Error{Kind: KindOff, URL: u.String(), Problem: "there is nothing to listen on"}
	default:
		return nil, malformed(u.String(), fmt.Sprintf("scheme %q is unknown", u.Scheme))
	}
}

type tcpListener struct {
	net.Listener
	url     URL
	locks   Locks
	limiter *limiter
}

func (l *tcpListener) URL() URL { return l.url }

// Close stops accepting, and closes the connections on which no request has come.
func (l *tcpListener) Close() error {
	err := l.Listener.Close()
	l.limiter.close()
	return err
}

// Accept waits for the next connection that has a place.
func (l *tcpListener) Accept() (net.Conn, error) {
	conn, err := l.limiter.accept(l.Listener.Accept)
	switch {
	case err != nil:
		return nil, err
	case l.locks.Authenticated || conn.refused != nil:
		return &strangerConn{limitedConn: conn, most: l.locks.Unadmitted}, nil
	}
	return conn, nil
}

func listenGRPC(ctx context.Context, u URL, locks Locks) (Listener, error) {
	if !u.Addr.Addr().IsLoopback() { // a URL that Parse did not make
		return nil, notLoopback(u.String(), u.Addr.Addr().String(), u.Addr.Port())
	}
	lis, bound, err := listenTCP(ctx, u, locks)
	if err != nil {
		return nil, err
	}
	return &tcpListener{Listener: lis, url: bound, locks: locks, limiter: newLimiter(bound, locks)}, nil
}

func listenGRPCS(ctx context.Context, u URL, locks Locks) (Listener, error) {
	switch {
	case locks.TLS == nil:
		return nil, noCertificate(u)
	case !u.Addr.Addr().IsLoopback() && !locks.Authenticated:
		return nil, &Error{Kind: KindUnauthenticated, URL: u.String(),
			Problem: fmt.Sprintf("host %s is not a loopback address, and whoever reaches it could run commands here", u.Addr.Addr()),
			Fix:     "say who is let in with principals_file, or listen on grpcs://127.0.0.1:" + strconv.Itoa(int(u.Addr.Port()))}
	}
	lis, bound, err := listenTCP(ctx, u, locks)
	if err != nil {
		return nil, err
	}
	return &tlsListener{Listener: lis, url: bound, locks: locks, limiter: newLimiter(bound, locks)}, nil
}

func noCertificate(u URL) *Error {
	return &Error{Kind: KindNoCertificate, URL: u.String(), Problem: "TLS needs a certificate and its key",
		Fix: "set tls_certificate_file and tls_key_file"}
}

// listenTCP returns a listener and u with the port that it has.
func listenTCP(ctx context.Context, u URL, locks Locks) (net.Listener, URL, error) {
	network := "tcp" // [::] is every address there is
	if u.Addr.Addr().Is4() {
		network = "tcp4" // and 0.0.0.0 every one of its kind
	}
	var lc net.ListenConfig
	lis, err := lc.Listen(ctx, network, u.Addr.String())
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, URL{}, &Error{
			Kind: KindInUse, URL: u.String(), Problem: fmt.Sprintf("port %d is already in use", u.Addr.Port()),
			Fix: "stop the other server, choose another port, or let the kernel choose one with port 0", Err: syscall.EADDRINUSE,
		}
	}
	if err != nil {
		return nil, URL{}, &Error{Kind: KindSystem, URL: u.String(), Problem: "the system refused", Err: err}
	}
	bound, err := netip.ParseAddrPort(lis.Addr().String())
	if err != nil {
		_ = lis.Close()
		return nil, URL{}, &Error{Kind: KindSystem, URL: u.String(), Problem: "the bound address cannot be read", Err: err}
	}
	u.Addr = bound
	return retryAccepts(lis, locks.acceptFailed(u)), u, nil
}
