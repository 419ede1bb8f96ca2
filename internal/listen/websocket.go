package listen

import (
	"crypto/tls"
	"fmt"
	"net"
	"sync"

	"google.golang.org/grpc/credentials"

	"github.com/execwire/execwire/internal/auth"
)

// RemoteAuthInfo is the AuthInfo of a caller on a ws listener from any host,
// about which nothing is known.
type RemoteAuthInfo struct {
	credentials.CommonAuthInfo
	Admission
}

// AuthType returns "none".
func (RemoteAuthInfo) AuthType() string { return "none" }

// wssConn is a connection of a wss listener. The handshake takes place on first
// use.
type wssConn struct {
	*tls.Conn
	preAuth *preAuthConn
	failed  func(remote net.Addr, err error)
	once    sync.Once // reports a failed handshake once
}

// Read implements net.Conn.
func (c *wssConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil && !c.ConnectionState().HandshakeComplete && !lost(err) {
		c.once.Do(func() { c.failed(c.RemoteAddr(), err) })
	}
	return n, err
}

// AuthInfoOf returns what the kernel and the TLS handshake know about the peer of
// a connection of a listener, or of a wrapper with a NetConn method: a
// [PeerAuthInfo], [LoopbackAuthInfo], [RemoteAuthInfo] or [TLSAuthInfo]. A
// connection of a wss listener must have been read from. Other connections are
// rejected, and so are those of a grpcs listener before their handshake.
func AuthInfoOf(conn net.Conn) (credentials.AuthInfo, error) {
	for {
		switch c := conn.(type) {
		case *wssConn:
			info := credentials.TLSInfo{State: c.ConnectionState(), CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}}
			if !info.State.HandshakeComplete {
				return nil, fmt.Errorf("failed to identify the peer %v: the TLS handshake is not complete", conn.RemoteAddr())
			}
			return TLSAuthInfo{TLSInfo: info, HostPeer: c.preAuth.hostPeer(), Admission: c.preAuth.admission()}, nil
		case *preAuthConn:
			return c.authInfo(c.admission())
		case *limitedConn:
			return c.authInfo(Admission{conn: c})
		case interface{ NetConn() net.Conn }:
			conn = c.NetConn()
		default:
			return nil, fmt.Errorf("failed to identify the peer %v: a %T is not from a listener", conn.RemoteAddr(), conn)
		}
	}
}

// authInfo returns the AuthInfo of a connection without TLS.
func (c *limitedConn) authInfo(admission Admission) (credentials.AuthInfo, error) {
	if conn, ok := c.Conn.(*net.UnixConn); ok {
		peer, err := auth.UnixPeer(conn)
		if err != nil {
			return nil, err
		}
		c.peer = peer
		level := credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}
		return PeerAuthInfo{CommonAuthInfo: level, HostPeer: c.hostPeer(), Admission: admission}, nil
	}
	level := credentials.CommonAuthInfo{SecurityLevel: credentials.NoSecurity}
	if isLoopback(c.LocalAddr()) && isLoopback(c.RemoteAddr()) {
		return LoopbackAuthInfo{CommonAuthInfo: level, HostPeer: c.hostPeer(), Admission: admission}, nil
	}
	return RemoteAuthInfo{CommonAuthInfo: level, Admission: admission}, nil
}

// Begin calls [Admission.Begin] for a connection that [AuthInfoOf] accepts;
// others are ignored.
func Begin(conn net.Conn) {
	if info, err := AuthInfoOf(conn); err == nil {
		info.(interface{ Begin() }).Begin()
	}
}

// NetConn returns the underlying connection, for setting socket options.
func (c *limitedConn) NetConn() net.Conn { return c.Conn }
