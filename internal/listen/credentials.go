package listen

import (
	"context"
	"fmt"
	"net"

	"google.golang.org/grpc/credentials"

	"github.com/execwire/execwire/internal/auth"
)

// PeerAuthInfo is the AuthInfo of a caller on a unix socket.
type PeerAuthInfo struct {
	credentials.CommonAuthInfo
	auth.Peer
}

// AuthType returns "unix".
func (PeerAuthInfo) AuthType() string { return "unix" }

// LoopbackAuthInfo is the AuthInfo of a caller on loopback TCP, of whom no more
// is known.
type LoopbackAuthInfo struct{ credentials.CommonAuthInfo }

// AuthType returns "loopback".
func (LoopbackAuthInfo) AuthType() string { return "loopback" }

// Principal returns [auth.Loopback].
func (LoopbackAuthInfo) Principal() auth.Principal { return auth.Loopback }

// PeerCredentials returns credentials for a gRPC server on this package's
// listeners, of either kind. They exchange nothing, so that clients connect in
// plain text, and give each connection a [PeerAuthInfo] or [LoopbackAuthInfo]
// as the kernel sees its other end; a connection that is neither is refused.
func PeerCredentials() credentials.TransportCredentials { return peerCredentials{} }

type peerCredentials struct{}

// ServerHandshake looks at the connection and leaves it as it is.
func (peerCredentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	info, err := authInfoOf(conn)
	if err != nil {
		return nil, nil, err
	}
	return conn, info, nil
}

func authInfoOf(conn net.Conn) (credentials.AuthInfo, error) {
	switch c := conn.(type) {
	case *net.UnixConn:
		p, err := auth.UnixPeer(c)
		if err != nil {
			return nil, err
		}
		level := credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}
		return PeerAuthInfo{CommonAuthInfo: level, Peer: p}, nil
	case *net.TCPConn:
		if isLoopback(c.LocalAddr()) && isLoopback(c.RemoteAddr()) {
			level := credentials.CommonAuthInfo{SecurityLevel: credentials.NoSecurity}
			return LoopbackAuthInfo{CommonAuthInfo: level}, nil
		}
	}
	return nil, fmt.Errorf("failed to identify the peer %v: a %T is neither a unix socket nor loopback TCP", conn.RemoteAddr(), conn)
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

func (c peerCredentials) Clone() credentials.TransportCredentials { return c }

// OverrideServerName has nothing to override.
func (peerCredentials) OverrideServerName(string) error { return nil }
