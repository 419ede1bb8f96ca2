package listen

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"

	"google.golang.org/grpc/credentials"

	"github.com/execwire/execwire/internal/auth"
)

// HostPeer is what the kernel knows about a caller on this host. The zero value
// is a caller on another host.
type HostPeer struct {
	// Peer is the process. On loopback it is meaningless if it could not be
	// found; then it is Refused, unless every user is accepted.
	Peer auth.Peer
	conn *limitedConn
}

// Refused returns why the process is not accepted without a credential, an
// [*auth.Error]; nil if it is. The first call may call [Options.Confined];
// further calls return the same.
func (p HostPeer) Refused() error {
	if p.conn == nil {
		return nil
	}
	return p.conn.peerError()
}

func (c *limitedConn) hostPeer() HostPeer { return HostPeer{Peer: c.peer, conn: c} }

// PeerAuthInfo is the AuthInfo of a caller on a unix socket.
type PeerAuthInfo struct {
	credentials.CommonAuthInfo
	HostPeer
	Admission
}

// AuthType returns "unix".
func (PeerAuthInfo) AuthType() string { return "unix" }

// LoopbackAuthInfo is the AuthInfo of a caller on loopback TCP.
type LoopbackAuthInfo struct {
	credentials.CommonAuthInfo
	HostPeer
	Admission
}

// AuthType returns "loopback".
func (LoopbackAuthInfo) AuthType() string { return "loopback" }

// PeerCredentials returns gRPC server credentials for the listeners of this
// package. On a grpcs listener they perform the TLS handshake, which gives the
// connection a [TLSAuthInfo]. On the others clients connect in plain text, and
// the connection gets a [PeerAuthInfo] or [LoopbackAuthInfo] from the kernel.
// Other connections are rejected. onError is called for failed handshakes, except
// when the connection was lost; it must not block and may be nil.
func PeerCredentials(onError func(remote net.Addr, err error)) credentials.TransportCredentials {
	if onError == nil {
		onError = func(net.Addr, error) {}
	}
	return peerCredentials{onError: onError}
}

type peerCredentials struct {
	onError func(remote net.Addr, err error)
}

// ServerHandshake identifies the peer, after a TLS handshake on a grpcs listener.
func (p peerCredentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if c, ok := conn.(*tlsConn); ok {
		secure, info, err := c.handshake()
		if err != nil && !lost(err) {
			p.onError(c.RemoteAddr(), err)
		}
		return secure, info, err
	}
	info, err := AuthInfoOf(conn)
	if err != nil {
		return nil, nil, err
	}
	if _, ok := info.(RemoteAuthInfo); ok {
		return nil, nil, fmt.Errorf("failed to identify the peer %v: it is on another host, and the listener has no TLS", conn.RemoteAddr())
	}
	return conn, info, nil
}

// lost reports whether a handshake failed because either end closed the
// connection, rather than because of its content.
func lost(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout() || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

func isLoopback(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// ClientHandshake fails: these credentials are for servers.
func (peerCredentials) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, fmt.Errorf("failed to connect: peer credentials are for servers; use insecure.NewCredentials")
}

// Info returns the protocol that clients must use.
func (peerCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "insecure"}
}

func (p peerCredentials) Clone() credentials.TransportCredentials { return p }

// OverrideServerName does nothing.
func (peerCredentials) OverrideServerName(string) error { return nil }
