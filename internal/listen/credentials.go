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

// AuthInfo is what a listener knows about the peer of a connection.
type AuthInfo struct {
	// TLSInfo has the certificates of a connection with TLS; of others only the
	// security level.
	credentials.TLSInfo
	Admission
	// Peer is the process at the other end of a unix socket; nil otherwise.
	Peer *auth.Peer
	// Loopback is whether this is a TCP connection within this host, without TLS.
	Loopback bool
}

// HasTLS reports whether the connection has TLS.
func (i AuthInfo) HasTLS() bool { return i.State.HandshakeComplete }

// AuthType returns "tls", "unix", "loopback", or "none" for a connection from another
// host without TLS.
func (i AuthInfo) AuthType() string {
	switch {
	case i.HasTLS():
		return "tls"
	case i.Peer != nil:
		return "unix"
	case i.Loopback:
		return "loopback"
	}
	return "none"
}

// Refused returns why a process of this host is not accepted without a credential, an
// [*auth.Error]; nil if it is, or is on another host. The first call may call
// [Options.Confined]; further calls return the same.
func (i AuthInfo) Refused() error {
	if i.conn == nil {
		return nil
	}
	return i.conn.peerError()
}

// PeerCredentials returns gRPC server credentials for the listeners of this
// package, whose connections get an [AuthInfo]. On a grpcs listener they perform the
// TLS handshake. On the others clients connect in plain text; those of other hosts
// are rejected, and so are other connections. onError is called for failed handshakes, except
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
	if info.AuthType() == "none" {
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
