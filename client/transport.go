package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/execwire/execwire/relay/harness"
)

// connectTimeout limits connecting, except through a relay.
const connectTimeout = 10 * time.Second

// Transport opens connections to a gRPC server for programs that forward other clients,
// such as NewForward of package daemon; all others use [Dial]. It may be used
// concurrently.
type Transport struct {
	url     string // for messages
	dialer  *recordingDialer
	tls     credentials.TransportCredentials // nil without TLS
	timeout time.Duration
}

// NewTransport parses the URL of a server, tcp://, tls://, unix:// or relay+wss://
// as for [Dial], and reads the files of the options, without connecting. A token is for
// the hub of a relay only: other servers expect it with calls, which a Transport does
// not make, so NewTransport returns a [*CredentialError]. gRPC options have no effect.
// Other errors are those of Dial.
func NewTransport(rawURL string, options ...Option) (*Transport, error) {
	if execServerScheme(rawURL) != "" {
		return nil, &URLError{URL: rawURL, Problem: "the URL is for JSON-RPC, and only gRPC can be forwarded: use tcp://HOST:PORT, tls://HOST:PORT, unix:///PATH or a relay"}
	}
	endpoint, err := parseURL(rawURL)
	if err != nil {
		return nil, err
	}
	config := newDialConfig(options)
	t := &Transport{url: endpoint.displayURL(rawURL), dialer: &recordingDialer{endpoint: endpoint}, timeout: connectTimeout}
	switch {
	case endpoint.relay != "":
		t.timeout = harness.ConnectTimeout
		err = config.relayOptions(t.dialer)
	case config.hasToken():
		err = &CredentialError{Err: fmt.Errorf("the token%s cannot be used: connections to %s carry calls of other clients, which send their own token", in(config.tokenFile), t.url)}
	case endpoint.tls:
		t.tls, err = config.tls.credentials(&recordingDialer{endpoint: endpoint})
	}
	if err != nil {
		return nil, err
	}
	return t, nil
}

// in returns where something is; empty for no path.
func in(path string) string {
	if path == "" {
		return ""
	}
	return " in " + path
}

// URL returns the URL of the server for messages, without a signature.
func (t *Transport) URL() string { return t.url }

// Connect opens a connection. It blocks until the server, or the executor behind the
// relay, has answered, for 10 s at most, or the timeouts of a relay. With tls:// the
// connection is inside TLS. The error is a [*DialError]. The caller closes the
// connection.
func (t *Transport) Connect(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, t.timeout, fmt.Errorf("no answer within %v", t.timeout))
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
	case err != nil, t.tls == nil:
		return conn, err
	}
	locked, _, err := t.tls.ClientHandshake(ctx, t.dialer.endpoint.authority, conn)
	if err != nil {
		_ = conn.Close() // nothing was sent
		return nil, explainTLS(err, "grpc")
	}
	return locked, nil
}
