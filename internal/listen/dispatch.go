package listen

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// DefaultHandshakeTimeout is the default of [Options.HandshakeTimeout].
const DefaultHandshakeTimeout = 20 * time.Second

// protocols are the protocols of a listener or a connection.
type protocols int

const (
	protocolGRPC protocols = 1 << iota // HTTP/2 with prior knowledge
	protocolHTTP                       // HTTP/1, with websockets
)

// Names of the protocols in ALPN.
const (
	alpnHTTP2 = "h2"
	alpnHTTP1 = "http/1.1"
)

// protocols returns what clients may speak on the listener.
func (u URL) protocols() protocols {
	switch u.Scheme {
	case SchemeGRPC, SchemeGRPCS:
		return protocolGRPC
	case SchemeWS, SchemeWSS:
		return protocolHTTP
	}
	return protocolGRPC | protocolHTTP
}

// IsGRPC reports whether a connection that begins with first, of at least three bytes,
// is for gRPC. It begins with the preface of HTTP/2, as no request of HTTP/1 and no
// JSON-RPC message does: there is no method with this prefix.
func IsGRPC(first []byte) bool { return bytes.HasPrefix(first, []byte(preface)) }

const preface = "PRI"

// firstBytes is how many bytes are read to tell the protocol, if they have arrived.
const firstBytes = 64

var (
	errNotServed = errors.New("the listener does not serve the protocol of the connection")
	errNoALPN    = errors.New("the client did not negotiate h2 by ALPN, which grpcs needs")
)

// Dispatch implements [Listener].
func (l *openListener) Dispatch(grpc, http *Queue) {
	var pending sync.WaitGroup
	defer pending.Wait()
	for {
		conn, err := l.limiter.accept(l.accepting.Accept)
		if err != nil {
			return
		}
		pending.Go(func() { l.dispatch(conn, grpc, http) })
	}
}

// dispatch delivers a connection once its protocol is known, or closes it. It takes at
// most the handshake timeout until then.
func (l *openListener) dispatch(counted *limitedConn, grpc, http *Queue) {
	var of protocols
	if grpc != nil {
		of |= protocolGRPC
	}
	if http != nil {
		of |= protocolHTTP
	}
	_ = counted.SetDeadline(time.Now().Add(l.opts.HandshakeTimeout)) // fails if closed, as what follows
	conn, is, err := l.classify(counted)
	_ = counted.SetDeadline(time.Time{})
	to := grpc
	if is == protocolHTTP {
		to = http
	}
	if err != nil || of&is == 0 || !to.Deliver(conn) {
		_ = counted.Close()
	}
}

// classify performs the TLS handshake, if the listener has TLS, and returns the
// protocol of the connection.
func (l *openListener) classify(counted *limitedConn) (conn net.Conn, is protocols, err error) {
	conn, is = counted, l.url.protocols()
	if l.url.hasTLS() {
		counted.boundTo(l.opts.UnauthenticatedBytes)
		secure := l.opts.TLS.server(counted, is)
		if err := secure.Handshake(); err != nil {
			if !lost(err) {
				l.opts.HandshakeFailed(counted.RemoteAddr(), err)
			}
			return nil, 0, err
		}
		conn = secure
		switch secure.ConnectionState().NegotiatedProtocol {
		case alpnHTTP2:
			is &= protocolGRPC
		case alpnHTTP1:
			is &= protocolHTTP
		default:
			if l.url.Scheme == SchemeGRPCS {
				l.opts.HandshakeFailed(counted.RemoteAddr(), errNoALPN)
				return nil, 0, errNoALPN
			}
		}
	}
	if is == protocolGRPC|protocolHTTP {
		first := make([]byte, firstBytes)
		n, err := io.ReadAtLeast(conn, first, len(preface))
		if err != nil {
			return nil, 0, err
		}
		is = protocolHTTP
		if IsGRPC(first) {
			is = protocolGRPC
		}
		conn = PutBack(conn, first[:n])
	}
	if is == 0 {
		return nil, 0, fmt.Errorf("%v: %w", counted.RemoteAddr(), errNotServed)
	}
	if !l.url.hasTLS() && l.url.Scheme != SchemeUnix && (l.opts.authenticated(is) || counted.userError != nil) {
		counted.boundTo(l.opts.UnauthenticatedBytes)
	}
	return conn, is, nil
}

// server returns the server's side of a TLS connection whose handshake was not
// performed yet. A client that offers several protocols gets HTTP/1: browsers and
// HTTP clients offer it, and gRPC clients do not.
func (t *TLS) server(counted *limitedConn, of protocols) *tlsConn {
	config := t.config.Load().Get().Clone()
	if of&protocolHTTP != 0 {
		config.NextProtos = append(config.NextProtos, alpnHTTP1)
	}
	if of&protocolGRPC != 0 {
		config.NextProtos = append(config.NextProtos, alpnHTTP2)
	}
	return &tlsConn{Conn: tls.Server(counted, config), counted: counted, certificate: config.Certificates[0].Leaf}
}
