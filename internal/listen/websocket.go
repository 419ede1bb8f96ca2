package listen

import (
	"crypto/tls"
	"fmt"
	"net"
	"sync"

	"google.golang.org/grpc/credentials"

	"github.com/execwire/execwire/internal/auth"
)

// wssConn is a connection of a wss listener. The handshake takes place on first
// use.
type wssConn struct {
	*tls.Conn
	counted *limitedConn // below TLS
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

// AuthInfoOf returns what the kernel and the TLS handshake know about the peer of a
// connection of a listener, or of a wrapper with a NetConn method. A connection of a
// wss listener must have been read from. Other connections are rejected, and so are
// those of a grpcs listener before their handshake.
func AuthInfoOf(conn net.Conn) (AuthInfo, error) {
	for {
		switch c := conn.(type) {
		case *wssConn:
			info := credentials.TLSInfo{State: c.ConnectionState(), CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}}
			if !info.State.HandshakeComplete {
				return AuthInfo{}, fmt.Errorf("failed to identify the peer %v: the TLS handshake is not complete", conn.RemoteAddr())
			}
			return AuthInfo{TLSInfo: info, Admission: Admission{c.counted}}, nil
		case *limitedConn:
			return c.authInfo()
		case interface{ NetConn() net.Conn }:
			conn = c.NetConn()
		default:
			return AuthInfo{}, fmt.Errorf("failed to identify the peer %v: a %T is not from a listener", conn.RemoteAddr(), conn)
		}
	}
}

// authInfo returns the AuthInfo of a connection without TLS.
func (c *limitedConn) authInfo() (AuthInfo, error) {
	info := AuthInfo{Admission: Admission{c}}
	conn, ok := c.Conn.(*net.UnixConn)
	if !ok {
		info.SecurityLevel = credentials.NoSecurity
		info.Loopback = isLoopback(c.LocalAddr()) && isLoopback(c.RemoteAddr())
		return info, nil
	}
	var err error
	if c.peer, err = auth.UnixPeer(conn); err != nil {
		return AuthInfo{}, err
	}
	info.SecurityLevel, info.Peer = credentials.PrivacyAndIntegrity, &c.peer
	return info, nil
}

// Begin calls [Admission.Begin] for a connection that [AuthInfoOf] accepts;
// others are ignored.
func Begin(conn net.Conn) {
	if info, err := AuthInfoOf(conn); err == nil {
		info.Begin()
	}
}

// NetConn returns the underlying connection, for setting socket options.
func (c *limitedConn) NetConn() net.Conn { return c.Conn }
