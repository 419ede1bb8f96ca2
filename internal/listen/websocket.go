package listen

import (
	"crypto/tls"
	"fmt"
	"net"
	"sync"

	"google.golang.org/grpc/credentials"
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

// AuthInfoOf returns what the kernel and the handshake know about the peer of a
// connection of a ws or wss listener, or of a wrapper with a NetConn method: a
// [LoopbackAuthInfo], [RemoteAuthInfo] or [TLSAuthInfo]. The connection must have
// been read from. Other connections are rejected.
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
			return plainAuthInfo(c.limitedConn, c.admission()), nil
		case *limitedConn:
			return plainAuthInfo(c, Admission{conn: c}), nil
		case interface{ NetConn() net.Conn }:
			conn = c.NetConn()
		default:
			return nil, fmt.Errorf("failed to identify the peer %v: a %T is not from a websocket listener", conn.RemoteAddr(), conn)
		}
	}
}

// Begin calls [Admission.Begin] for a connection that [AuthInfoOf] accepts;
// others are ignored.
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

// NetConn returns the underlying connection, for setting socket options.
func (c *limitedConn) NetConn() net.Conn { return c.Conn }
