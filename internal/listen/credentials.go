package listen

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
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

	certificate *x509.Certificate // the server's, of a connection with TLS
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

// AuthInfoOf returns what the kernel and the TLS handshake know about the peer of a
// connection that a listener delivered, or of a wrapper with a NetConn method. Other
// connections are rejected.
func AuthInfoOf(conn net.Conn) (AuthInfo, error) {
	for {
		switch c := conn.(type) {
		case *tlsConn:
			return c.authInfo(), nil
		case *limitedConn:
			return c.authInfo()
		case interface{ NetConn() net.Conn }:
			conn = c.NetConn()
		default:
			return AuthInfo{}, fmt.Errorf("failed to identify the peer %v: a %T is not from a listener", conn.RemoteAddr(), conn)
		}
	}
}

// Begin calls [Admission.Begin] for a connection that [AuthInfoOf] accepts;
// others are ignored.
func Begin(conn net.Conn) {
	if info, err := AuthInfoOf(conn); err == nil {
		info.Begin()
	}
}

// KnowsHost reports whether host, from a Host header, can mean the listener: it is
// empty, an IP address, localhost, a name of the server's certificate or, on a unix
// socket, a name without a dot. A web page that makes its own name resolve to the
// address of the listener (DNS rebinding) has another name. A port is ignored: a
// tunnel has another one.
func (i AuthInfo) KnowsHost(host string) bool {
	host = HostName(host)
	switch _, err := netip.ParseAddr(host); {
	case err == nil, host == "", host == "localhost":
		return true
	case i.Peer != nil:
		return !strings.Contains(host, ".")
	}
	return i.certificate != nil && i.certificate.VerifyHostname(host) == nil
}

// Hosts are names of a server in the Host header of HTTP requests, beside those that
// [AuthInfo.KnowsHost] accepts. Its methods may be called concurrently.
type Hosts map[string]bool

// NewHosts returns the set of names. Ports, brackets and case are ignored.
func NewHosts(names ...string) Hosts {
	h := make(Hosts)
	for _, name := range names {
		h[HostName(name)] = true
	}
	return h
}

// Know reports whether host, from the Host header of a request on conn, can mean the
// server. A connection that [AuthInfoOf] does not know has no names of its own.
func (h Hosts) Know(conn net.Conn, host string) bool {
	info, err := AuthInfoOf(conn)
	return err == nil && info.KnowsHost(host) || h[HostName(host)]
}

// HostName returns the host of a Host header without its port and brackets, in lower
// case.
func HostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.Trim(host, "[]"))
}

// PeerCredentials returns gRPC server credentials for connections that the listeners of
// this package delivered, which get an [AuthInfo]. Connections without TLS from other
// hosts are rejected, and so are those of other listeners.
func PeerCredentials() credentials.TransportCredentials { return peerCredentials{} }

type peerCredentials struct{}

// ServerHandshake identifies the peer. The TLS handshake was performed before.
func (peerCredentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
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
