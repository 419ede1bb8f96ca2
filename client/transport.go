package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/execwire/execwire/relay/harness"
)

// connectTimeout bounds how long a connection may take to come about, other than
// through a relay.
const connectTimeout = 10 * time.Second

// Transport opens connections to a server of gRPC on which nothing has been said
// yet. It is for programs that pass on what other clients say, as NewForward of
// package daemon does; all others want [Dial]. It may be used concurrently.
type Transport struct {
	url     string // for people
	dialer  *recordingDialer
	locks   credentials.TransportCredentials // nil where the connection is not locked by TLS
	timeout time.Duration
}

// NewTransport reads the URL of a server, grpc://, grpcs://, unix:// or relay+wss://
// as [Dial] takes them, and the files that options name, and connects to nobody. A
// token is for the hub of a relay; to other servers it is shown by calls, which a
// Transport does not make, so that it is refused for them with a
// [*CredentialError]. Options of gRPC have no effect. Other errors are those of
// Dial.
func NewTransport(rawURL string, options ...Option) (*Transport, error) {
	if u, err := url.Parse(rawURL); err == nil && (u.Scheme == "ws" || u.Scheme == "wss" || u.Scheme == "stdio") {
		return nil, &URLError{URL: rawURL, Problem: "what listens there speaks JSON-RPC, and this is for gRPC: name its listener of grpc://HOST:PORT, grpcs://HOST:PORT or unix:///PATH, or a relay"}
	}
	endpoint, err := parseURL(rawURL)
	if err != nil {
		return nil, err
	}
	var config dialConfig
	for _, option := range options {
		option(&config)
	}
	t := &Transport{url: endpoint.shown(rawURL), dialer: &recordingDialer{endpoint: endpoint}, timeout: connectTimeout}
	switch {
	case endpoint.relay != "":
		t.timeout = harness.ConnectTimeout
		err = config.relayOptions(t.dialer)
	case config.tokenFile != "":
		err = &CredentialError{Err: fmt.Errorf("the token in %s is for calls, and connections to %s carry those of others: have them show it", config.tokenFile, t.url)}
	case endpoint.tls:
		t.locks, err = config.tls.credentials(&recordingDialer{endpoint: endpoint})
	}
	if err != nil {
		return nil, err
	}
	return t, nil
}

// URL returns the URL of the server for people: without a signature that it may
// have.
func (t *Transport) URL() string { return t.url }

// Connect opens a connection. It blocks until the server, or the executor behind
// the relay, has answered, for 10 s at most, through a relay for as long as its two
// ends may take. With grpcs:// the connection is one within TLS. The error is a
// [*DialError]. The caller closes the connection.
func (t *Transport) Connect(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, t.timeout, fmt.Errorf("nobody answered within %v", t.timeout))
	defer cancel()
	conn, err := t.connect(ctx)
	if err == nil {
		return conn, nil
	}
	if ctx.Err() != nil && !errors.As(err, new(*TLSError)) {
		err = context.Cause(ctx)
	}
	return nil, &DialError{URL: t.url, Err: err}
}

func (t *Transport) connect(ctx context.Context) (net.Conn, error) {
	conn, err := t.dialer.connect(ctx)
	switch {
	case err != nil && t.dialer.endpoint.relay != "":
		return nil, explainHubTLS(err, t.dialer.endpoint.tls)
	case err != nil, t.locks == nil:
		return conn, err
	}
	locked, _, err := t.locks.ClientHandshake(ctx, t.dialer.endpoint.authority, conn)
	if err != nil {
		_ = conn.Close() // nothing was said
		return nil, explainTLS(err, "grpc")
	}
	return locked, nil
}
