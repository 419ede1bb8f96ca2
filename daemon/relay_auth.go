package daemon

import (
	"net"

	"google.golang.org/grpc/credentials"

	"github.com/execwire/execwire/internal/auth"
)

// relayAuthInfo is the AuthInfo of a client that uses the relay.
type relayAuthInfo struct {
	credentials.CommonAuthInfo
	conn *relayedConn
}

// AuthType returns "relay".
func (relayAuthInfo) AuthType() string { return "relay" }

// relayCredentials returns the credentials of clients that use the relay.
func relayCredentials() auth.Credentials { return auth.Credentials{Known: auth.Relay} }

// listenerCredentials are the TransportCredentials of the listeners, extended by
// connections of the relay.
type listenerCredentials struct {
	credentials.TransportCredentials
}

// ServerHandshake implements credentials.TransportCredentials.
func (c listenerCredentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if relayed, ok := conn.(*relayedConn); ok {
		return conn, relayAuthInfo{credentials.CommonAuthInfo{SecurityLevel: credentials.NoSecurity}, relayed}, nil
	}
	return c.TransportCredentials.ServerHandshake(conn)
}

// Clone implements credentials.TransportCredentials.
func (c listenerCredentials) Clone() credentials.TransportCredentials {
	return listenerCredentials{c.TransportCredentials.Clone()}
}
