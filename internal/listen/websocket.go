package listen

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strconv"
	"sync"

	"google.golang.org/grpc/credentials"
)

// RemoteAuthInfo is the AuthInfo of a caller at a ws door who may be anywhere,
// and of whom nothing is known.
type RemoteAuthInfo struct {
	credentials.CommonAuthInfo
	Admission
}

// AuthType returns "none".
func (RemoteAuthInfo) AuthType() string { return "none" }

// listenWebsocket opens a door for HTTP. Whoever accepts connections asks
// [AuthInfoOf] who is at their other end.
func listenWebsocket(ctx context.Context, u URL, locks Locks) (Listener, error) {
	switch {
	case u.Scheme == SchemeWSS && locks.TLS == nil:
		return nil, noCertificate(u)
	case !u.Addr.Addr().IsLoopback() && !locks.WebsocketAuthenticated:
		return nil, &Error{Kind: KindUnauthenticated, URL: u.String(),
			Problem: fmt.Sprintf("host %s is not a loopback address, and whoever reaches it could run commands here", u.Addr.Addr()),
			Fix: "say who is let in with ws_auth (--ws-auth) or principals_file, or listen on " + string(u.Scheme) +
				"://127.0.0.1:" + strconv.Itoa(int(u.Addr.Port()))}
	}
	lis, bound, err := listenTCP(ctx, u, locks)
	if err != nil {
		return nil, err
	}
	if locks.HandshakeFailed == nil {
		locks.HandshakeFailed = func(net.Addr, error) {}
	}
	return &websocketListener{Listener: lis, url: bound, locks: locks, limiter: newLimiter(bound, locks)}, nil
}

type websocketListener struct {
	net.Listener
	url     URL
	locks   Locks
	limiter *limiter
}

func (l *websocketListener) URL() URL { return l.url }

// Close stops accepting, and closes the connections on which no request has come.
func (l *websocketListener) Close() error {
	err := l.Listener.Close()
	l.limiter.close()
	return err
}

// Accept waits for the next connection that has a place. It does not wait for a
// handshake, which the first Read makes.
func (l *websocketListener) Accept() (net.Conn, error) {
	secure := l.url.Scheme == SchemeWSS
	conn, err := l.limiter.accept(l.Listener.Accept)
	switch {
	case err != nil:
		return nil, err
	case !secure && !l.locks.WebsocketAuthenticated && conn.refused == nil:
		return conn, nil
	}
	stranger := &strangerConn{limitedConn: conn, most: l.locks.Unadmitted}
	if !secure {
		return stranger, nil
	}
	return &secureConn{Conn: tls.Server(stranger, l.locks.TLS.config.Get()), stranger: stranger, failed: l.locks.HandshakeFailed}, nil
}

// secureConn is a connection of a wss door. It shakes hands when it is used
// first.
type secureConn struct {
	*tls.Conn
	stranger *strangerConn
	failed   func(remote net.Addr, err error)
	once     sync.Once // a failed handshake is told
}

// Read implements net.Conn.
func (c *secureConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil && !c.ConnectionState().HandshakeComplete && !lost(err) {
		c.once.Do(func() { c.failed(c.RemoteAddr(), err) })
	}
	return n, err
}

// AuthInfoOf says what the kernel and the handshake know about the other end of
// a connection that was accepted at a ws or wss door, or of what wraps one and
// returns it by NetConn: a [LoopbackAuthInfo], [RemoteAuthInfo] or [TLSAuthInfo].
// It must have been read from. A connection of another kind is refused.
func AuthInfoOf(conn net.Conn) (credentials.AuthInfo, error) {
	for {
		switch c := conn.(type) {
		case *secureConn:
			info := credentials.TLSInfo{State: c.ConnectionState(), CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}}
			if !info.State.HandshakeComplete {
				return nil, fmt.Errorf("failed to identify the peer %v: it has not shaken hands", conn.RemoteAddr())
			}
			return TLSAuthInfo{TLSInfo: info, HostPeer: c.stranger.hostPeer(), Admission: c.stranger.admission()}, nil
		case *strangerConn:
			return plainAuthInfo(c.limitedConn, c.admission()), nil
		case *limitedConn:
			return plainAuthInfo(c, Admission{counted: c}), nil
		case interface{ NetConn() net.Conn }:
			conn = c.NetConn()
		default:
			return nil, fmt.Errorf("failed to identify the peer %v: a %T came by no door for websockets", conn.RemoteAddr(), conn)
		}
	}
}

// Begin is [Admission.Begin] of what [AuthInfoOf] takes; other connections are left
// alone.
func Begin(conn net.Conn) {
	if info, err := AuthInfoOf(conn); err == nil {
		info.(interface{ Begin() }).Begin()
	}
}

func plainAuthInfo(conn *limitedConn, admission Admission) credentials.AuthInfo {
	level := credentials.CommonAuthInfo{SecurityLevel: credentials.NoSecurity}
	if isLoopback(conn.LocalAddr()) && isLoopback(conn.RemoteAddr()) {
		return LoopbackAuthInfo{CommonAuthInfo: level, HostPeer: conn.hostPeer(), Admission: admission}
	}
	return RemoteAuthInfo{CommonAuthInfo: level, Admission: admission}
}

// NetConn returns the connection that is counted, for whoever sets options of
// sockets.
func (c *limitedConn) NetConn() net.Conn { return c.Conn }
