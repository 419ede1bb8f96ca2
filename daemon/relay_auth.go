package daemon

import (
	"net"

	"google.golang.org/grpc/credentials"

	"github.com/execwire/execwire/internal/auth"
)

// relayAuthInfo is the AuthInfo of a caller that came through the relay.
type relayAuthInfo struct {
	credentials.CommonAuthInfo
	conn *relayedConn
}

// AuthType returns "relay".
func (relayAuthInfo) AuthType() string { return "relay" }

// shownByRelay is what is known about whoever comes through the relay.
func shownByRelay() auth.Credentials { return auth.Credentials{Known: auth.Relay} }

// doorCredentials are those of listeners, and know connections of the relay
// besides.
type doorCredentials struct {
	credentials.TransportCredentials
}

// ServerHandshake implements credentials.TransportCredentials.
func (c doorCredentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if relayed, ok := conn.(*relayedConn); ok {
		return conn, relayAuthInfo{credentials.CommonAuthInfo{SecurityLevel: credentials.NoSecurity}, relayed}, nil
	}
	return c.TransportCredentials.ServerHandshake(conn)
}

// Clone implements credentials.TransportCredentials.
func (c doorCredentials) Clone() credentials.TransportCredentials {
	return doorCredentials{c.TransportCredentials.Clone()}
}
