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

// HostPeer is what the kernel knows about a caller on this host. The zero value is
// of one elsewhere.
type HostPeer struct {
	// Peer is its process. On loopback it means nothing if that could not be found,
	// which is then Refused, unless every user is accepted.
	Peer auth.Peer
	conn *limitedConn
}

// Refused returns why the process is not accepted without a credential, an
// [*auth.Error]; nil if it is. The first call may ask [Locks.Confined]; further ones
// return the same.
func (p HostPeer) Refused() error {
	if p.conn == nil {
		return nil
	}
	return p.conn.refusal()
}

func (c *limitedConn) hostPeer() HostPeer { return HostPeer{Peer: c.peer, conn: c} }

// PeerAuthInfo is the AuthInfo of a caller on a unix socket.
type PeerAuthInfo struct {
	credentials.CommonAuthInfo
	HostPeer
	Admission
}

// Principal returns the caller's user.
func (p PeerAuthInfo) Principal() auth.Principal { return p.Peer.Principal() }

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

// Principal returns [auth.Loopback].
func (LoopbackAuthInfo) Principal() auth.Principal { return auth.Loopback }

// PeerCredentials returns credentials for a gRPC server on this package's
// listeners, of any kind. On a grpcs door they shake hands, which gives the
// connection a [TLSAuthInfo]. On the others they exchange nothing, so
// that clients connect in plain text, and give each connection a [PeerAuthInfo]
// or [LoopbackAuthInfo] as the kernel sees its other end. A connection of
// another kind is refused. failed is told of clients that did not get through
// the handshake, but for those that were lost during it or left; it must not
// block, and nil is not told.
func PeerCredentials(failed func(remote net.Addr, err error)) credentials.TransportCredentials {
	if failed == nil {
		failed = func(net.Addr, error) {}
	}
	return peerCredentials{failed: failed}
}

type peerCredentials struct {
	failed func(remote net.Addr, err error)
}

// ServerHandshake looks at the connection, and shakes hands if it came by a
// grpcs door.
func (p peerCredentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if c, ok := conn.(*tlsConn); ok {
		locked, info, err := c.shakeHands()
		if err != nil && !lost(err) {
			p.failed(c.RemoteAddr(), err)
		}
		return locked, info, err
	}
	info, err := authInfoOf(conn)
	if err != nil {
		return nil, nil, err
	}
	return conn, info, nil
}

// lost reports whether a handshake ended with its connection, which either end
// may have closed, and not because of what was said in it.
func lost(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout() || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

func authInfoOf(conn net.Conn) (credentials.AuthInfo, error) {
	var admission Admission
	switch c := conn.(type) {
	case *strangerConn:
		admission = c.admission()
	case *limitedConn:
		admission = Admission{counted: c}
	default:
		return nil, fmt.Errorf("failed to identify the peer %v: a %T came by no listener", conn.RemoteAddr(), conn)
	}
	accepted := admission.counted
	switch c := accepted.Conn.(type) {
	case *net.UnixConn:
		p, err := auth.UnixPeer(c)
		if err != nil {
			return nil, err
		}
		level := credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}
		accepted.peer = p
		return PeerAuthInfo{CommonAuthInfo: level, HostPeer: accepted.hostPeer(), Admission: admission}, nil
	case *net.TCPConn:
		if isLoopback(c.LocalAddr()) && isLoopback(c.RemoteAddr()) {
			level := credentials.CommonAuthInfo{SecurityLevel: credentials.NoSecurity}
			return LoopbackAuthInfo{CommonAuthInfo: level, HostPeer: accepted.hostPeer(), Admission: admission}, nil
		}
	}
	return nil, fmt.Errorf("failed to identify the peer %v: a %T is neither a unix socket nor loopback TCP", conn.RemoteAddr(), accepted.Conn)
}

func isLoopback(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// ClientHandshake fails: these are a server's credentials.
func (peerCredentials) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, fmt.Errorf("failed to connect: peer credentials are for servers; use insecure.NewCredentials")
}

// Info names what a client has to use.
func (peerCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "insecure"}
}

func (p peerCredentials) Clone() credentials.TransportCredentials { return p }

// OverrideServerName has nothing to override.
func (peerCredentials) OverrideServerName(string) error { return nil }
