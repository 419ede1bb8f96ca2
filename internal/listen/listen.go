package listen

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/confinement"
)

// Listener is an open listener. Its methods may be called concurrently.
type Listener interface {
	// Dispatch accepts connections until Close, and delivers each to the queue of its
	// protocol: gRPC, which is HTTP/2 with prior knowledge, or HTTP/1. By a nil queue a
	// protocol is not served: its connections are closed. With TLS the protocol is
	// negotiated by ALPN. Otherwise, and for clients without ALPN, the first bytes tell
	// it, unless the scheme of the listener does. A client that sends none within
	// [Options.HandshakeTimeout] is disconnected, and delays no other. Failed accepts
	// are retried. Dispatch returns when all connections were delivered or closed. It
	// is called once, and once more after each Resume.
	Dispatch(grpc, http *Queue)
	// Pause makes Dispatch return, and closes connections without a request. The socket
	// stays open, so that the kernel queues clients that connect, until Resume or Close.
	Pause() error
	// Disconnect closes all connections.
	Disconnect()
	// SetConnections replaces [Options.Connections] for connections that are admitted
	// later. It closes none: if there are more, each new one takes the place of another.
	SetConnections(limit int)
	// Resume ends a pause. Connections that were queued are accepted.
	Resume() error
	// Socket returns the socket, for another program that goes on with the listener; see
	// [Options.Taken]. It is valid until Close.
	Socket() Socket
	// URL returns the address for clients, with the port that the kernel chose.
	URL() URL
	// Addr returns that address.
	Addr() net.Addr
	// Close stops listening, and closes connections without a request; see
	// [Admission.Begin]. Further calls return the same.
	Close() error
}

// Options configure listeners.
type Options struct {
	// TLS is required for tls, grpcs and wss.
	TLS *TLS
	// HandshakeTimeout bounds the time from the accept until the protocol is known,
	// including the TLS handshake. 0 is [DefaultHandshakeTimeout].
	HandshakeTimeout time.Duration
	// Authenticated is whether callers by gRPC are authenticated, so that a tls or
	// grpcs listener may be reachable from other hosts.
	Authenticated bool
	// WebsocketAuthenticated is the same for callers by HTTP, and ws and wss listeners.
	WebsocketAuthenticated bool
	// LoopbackUsers are the users whose processes are accepted on loopback
	// without a credential. Connections of others are served until a call is
	// rejected.
	LoopbackUsers auth.LoopbackUsers
	// Confined returns [confinement.ErrConfined] if a process of this host is confined,
	// and another error if it may be: it is not accepted without a credential. It is
	// called once per connection, by [AuthInfo.Refused], concurrently, and may read
	// /proc. A nil Confined accepts all.
	Confined func(confinement.Peer) error
	// UnauthenticatedBytes is how many bytes may be received on a connection
	// before a request is authenticated, including the handshake. A connection
	// that exceeds it is closed. It applies to listeners with TLS or
	// authentication, and to peers that LoopbackUsers does not accept.
	UnauthenticatedBytes int
	// Connections is how many admitted connections each listener may have; 0
	// means unlimited. A connection is admitted with its first authenticated
	// request, in place of one of the principal with the most if necessary; see
	// [Admission.Admit]. An eighth more connections, and at least one, may be
	// open without being admitted: the oldest of them is closed for a new one.
	Connections int
	// Inherited are listening sockets that this program was started with. A listener
	// with the address of one uses it and does not bind; closing the listener closes
	// it. The file of a unix socket keeps its mode, and is not removed.
	Inherited []net.Listener
	// Taken are the sockets with which a program before went on. May be nil.
	Taken *Taken
	// Full is called with the listener and the limit for each connection that was
	// closed, evicted or rejected because of Connections, concurrently. It must
	// not block. May be nil.
	Full func(u URL, limit int)
	// AcceptFailed is called with the error of a failed accept, for example for
	// lack of descriptors, and a fix: at most once a minute per listener. The
	// accept is retried. It is called concurrently and must not block. May be
	// nil.
	AcceptFailed func(URL, error)
	// HandshakeFailed is called for failed TLS handshakes, except when the connection
	// was lost. It is called concurrently and must not block. May be nil.
	HandshakeFailed func(remote net.Addr, err error)
}

// acceptFailed returns AcceptFailed for the listener u.
func (l Options) acceptFailed(u URL) func(error) {
	if l.AcceptFailed == nil {
		return nil
	}
	return func(err error) { l.AcceptFailed(u, err) }
}

// Listen opens the listener u. It may wait for another server that opens or
// checks a socket in the same directory, until ctx ends and at most 10 s; the
// listener itself does not depend on ctx. The error is an *[Error]. Insecure
// combinations of u and opts are rejected.
func Listen(ctx context.Context, u URL, opts Options) (Listener, error) {
	switch u.Scheme {
	case SchemeTCP, SchemeTLS, SchemeGRPC, SchemeGRPCS, SchemeWS, SchemeWSS:
		return listenTCP(ctx, u, opts)
	case SchemeUnix:
		return listenUnix(ctx, u, opts)
	case SchemeStdio:
		return nil, &Error{Kind: KindOff, URL: u.String(), Problem: "standard input and output are not a listener"}
	case SchemeOff:
		return nil, &Error{Kind: KindOff, URL: u.String(), Problem: "there is nothing to listen on"}
	default:
		return nil, malformed(u.String(), fmt.Sprintf("scheme %q is unknown", u.Scheme))
	}
}

// hasTLS reports whether connections of the listener begin with a TLS handshake.
func (u URL) hasTLS() bool {
	return u.Scheme == SchemeTLS || u.Scheme == SchemeGRPCS || u.Scheme == SchemeWSS
}

// authenticated reports whether callers by all these protocols are authenticated.
func (l Options) authenticated(by protocols) bool {
	return (by&protocolGRPC == 0 || l.Authenticated) && (by&protocolHTTP == 0 || l.WebsocketAuthenticated)
}

// check rejects an insecure combination of a TCP listener and options.
func (l Options) check(u URL) error {
	reachable := !u.Addr.Addr().IsLoopback()
	switch {
	case u.hasTLS() && l.TLS == nil:
		return &Error{Kind: KindNoCertificate, URL: u.String(), Problem: "TLS needs a certificate and its key",
			Fix: "set tls_cert and tls_key"}
	case reachable && u.loopbackOnly(): // Parse would reject it
		return notLoopback(u.String(), u, u.Addr.Addr().String())
	case reachable && !l.authenticated(u.protocols()):
		fix := "configure principals_file"
		if u.protocols() == protocolHTTP {
			fix = "configure ws_auth (--ws-auth) or principals_file"
		}
		return &Error{Kind: KindUnauthenticated, URL: u.String(),
			Problem: fmt.Sprintf("host %s is not a loopback address, and anyone who can connect could run commands", u.Addr.Addr()),
			Fix:     fmt.Sprintf("%s, or listen on %s://127.0.0.1:%d", fix, u.Scheme, u.Addr.Port())}
	}
	return nil
}

// openListener is an open listener of any scheme.
type openListener struct {
	accepting *retryingListener
	socket    Socket
	url       URL
	opts      Options
	limiter   *limiter
	close     func() error
}

// newListener returns the listener u, whose connections inner accepts; asked is u as it
// was asked for. Its first Close removes the file of a unix socket, unless file is zero.
func newListener(inner net.Listener, asked, u URL, opts Options, file inode) *openListener {
	if opts.HandshakeFailed == nil {
		opts.HandshakeFailed = func(net.Addr, error) {}
	}
	opts.HandshakeTimeout = cmp.Or(opts.HandshakeTimeout, DefaultHandshakeTimeout)
	accepting := retryAccepts(inner, opts.acceptFailed(u))
	l := &openListener{accepting: accepting, url: u, opts: opts, limiter: newLimiter(u, opts),
		socket: Socket{Asked: asked, Listener: inner, Device: file.dev, Inode: file.ino}}
	l.close = sync.OnceValue(func() error {
		// The socket is removed first: otherwise another server could consider it
		// dead and replace it, and the new one would be removed.
		removal := unlink(u, file)
		err := l.accepting.Close()
		l.limiter.close()
		return errors.Join(removal, err)
	})
	return l
}

// URL implements [Listener].
func (l *openListener) URL() URL { return l.url }

// Addr returns the address for clients. A unix socket was bound to another path.
func (l *openListener) Addr() net.Addr {
	if l.url.Scheme == SchemeUnix {
		return &net.UnixAddr{Name: l.url.Path, Net: "unix"}
	}
	return l.accepting.Addr()
}

// Close implements [Listener].
func (l *openListener) Close() error { return l.close() }

// Pause implements [Listener].
func (l *openListener) Pause() error {
	err := l.accepting.pause()
	l.limiter.close()
	return err
}

// Disconnect implements [Listener].
func (l *openListener) Disconnect() { l.limiter.disconnect() }

// SetConnections implements Listener.
func (l *openListener) SetConnections(limit int) { l.limiter.limit.Store(int64(limit)) }

// Resume implements [Listener].
func (l *openListener) Resume() error {
	l.limiter.reopen()
	return l.accepting.resume()
}

// Socket implements [Listener].
func (l *openListener) Socket() Socket { return l.socket }

// listenTCP opens a TCP listener.
func listenTCP(ctx context.Context, u URL, opts Options) (Listener, error) {
	if err := opts.check(u); err != nil {
		return nil, err
	}
	asked := u
	if socket := opts.Taken.take(u); socket != nil {
		u.Addr = socket.Listener.Addr().(*net.TCPAddr).AddrPort()
		return newListener(socket.Listener, asked, u, opts, inode{}), nil
	}
	if socket := opts.inherited(u); socket != nil {
		return newListener(socket, asked, u, opts, inode{}), nil
	}
	network := "tcp" // [::] accepts both families
	if u.Addr.Addr().Is4() {
		network = "tcp4" // 0.0.0.0 accepts IPv4 only
	}
	var lc net.ListenConfig
	lis, err := lc.Listen(ctx, network, u.Addr.String())
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, &Error{
			Kind: KindInUse, URL: u.String(), Problem: fmt.Sprintf("port %d is already in use", u.Addr.Port()),
			Fix: "stop the other server, choose another port, or let the kernel choose one with port 0", Err: syscall.EADDRINUSE,
		}
	}
	if err != nil {
		return nil, &Error{Kind: KindSystem, URL: u.String(), Problem: "the system refused", Err: err}
	}
	u.Addr = lis.Addr().(*net.TCPAddr).AddrPort()
	return newListener(lis, asked, u, opts, inode{}), nil
}
