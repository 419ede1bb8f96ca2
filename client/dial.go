package client

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"google.golang.org/grpc"
	grpcbackoff "google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/execwire/execwire/internal/backoff"
	"github.com/execwire/execwire/internal/syserr"
	"github.com/execwire/execwire/internal/tracecontext"
)

const (
	keepaliveInterval = 30 * time.Second
	keepaliveTimeout  = 10 * time.Second

	// Setting a window makes it static and disables flow-control estimation, so both
	// are set: a connection carries several streams at full rate, and a stream the
	// bandwidth-delay product of a long fast path.
	streamWindowBytes     = 8 << 20
	connectionWindowBytes = 16 << 20
	socketBufferBytes     = 128 << 10

	maxMessageBytes = 16 << 20
)

// Option configures [Dial].
type Option func(*dialConfig)

type dialConfig struct {
	grpc      []grpc.DialOption
	tls       TLSFiles
	token     string // or that of tokenFile; both empty: none
	tokenFile string
	launch    *LaunchCommand // nil: the URL has the command
	name      string         // empty: the default of each protocol
}

func newDialConfig(options []Option) *dialConfig {
	var c dialConfig
	for _, option := range options {
		option(&c)
	}
	return &c
}

// WithName sets the name of this program for logs of servers: the clientName of the
// exec-server protocol and the user agent of gRPC. The default is execwire.
func WithName(name string) Option {
	return func(c *dialConfig) { c.name = name }
}

// WithDialOptions adds gRPC options, applied after those of Dial itself.
func WithDialOptions(options ...grpc.DialOption) Option {
	return func(c *dialConfig) { c.grpc = append(c.grpc, options...) }
}

// DialError reports that a server could not be reached.
type DialError struct {
	// URL is the URL given to Dial.
	URL string
	// Err is the cause: an error of the operating system if there is one, or the cause
	// of the context that ended.
	Err error
}

func (e *DialError) Error() string { return fmt.Sprintf("failed to reach %s: %v", e.URL, e.Err) }

func (e *DialError) Unwrap() error { return e.Err }

// URLError reports a server URL that Dial does not support.
type URLError struct {
	// URL is the URL given to Dial.
	URL string
	// Problem describes what is wrong and how to fix it.
	Problem string
}

func (e *URLError) Error() string {
	return fmt.Sprintf("failed to parse server URL %q: %s", e.URL, e.Problem)
}

// Dial connects to the server at rawURL:
//
//	tcp://HOST:PORT           gRPC without TLS; grpc:// means the same
//	tls://HOST:PORT           gRPC with TLS; grpcs:// means the same
//	unix:///PATH              gRPC over a unix socket
//	relay+wss://HOST/executor/ID?role=harness
//	                          an executor of a relay, see [RelayURL]: gRPC, or the
//	                          exec-server protocol if the executor has only that
//	ws://HOST:PORT, wss://HOST:PORT
//	                          the exec-server protocol, of execwire or the reference
//	stdio:COMMAND             starts a server of that protocol; COMMAND is split
//	                          without a shell, see [WithLaunchCommand]
//
// A launched server ends with the client, and the client with the server. Package
// execserver documents what the exec-server protocol cannot express.
//
// Dial blocks until the server has answered, cannot be reached ([*DialError]), or ctx
// is done. A refused connection, a rejection and an answer that is not gRPC fail at
// once. A connection lost before the server has answered is retried until ctx is done,
// for 30 seconds if ctx has no deadline; one lost later is re-established when needed.
// A token is sent with each call, so that a wrong one fails the first call; to a relay
// it is sent when connecting. The caller closes the client.
func Dial(ctx context.Context, rawURL string, options ...Option) (*Client, error) {
	config := newDialConfig(options)
	if execServerScheme(rawURL) != "" {
		return config.dialExecServer(ctx, rawURL)
	}
	conn, dialer, err := config.connect(ctx, rawURL)
	if isJSONRPCExecutor(err) {
		return config.dialExecServer(ctx, rawURL)
	}
	if err != nil {
		return nil, err
	}
	c := NewOwning(conn, conn)
	c.life.rejection = dialer.rejection
	if dialer.endpoint.relay != "" {
		c.life.lastReceived = dialer.lastReceived
	}
	return c, nil
}

// Connect is [Dial] for generated clients: it returns the gRPC connection, which the
// caller closes.
func Connect(ctx context.Context, rawURL string, options ...Option) (*grpc.ClientConn, error) {
	conn, _, err := newDialConfig(options).connect(ctx, rawURL)
	return conn, err
}

func (c *dialConfig) connect(ctx context.Context, rawURL string) (*grpc.ClientConn, *recordingDialer, error) {
	endpoint, err := parseURL(rawURL)
	if err != nil {
		return nil, nil, err
	}
	bound := ctx
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		bound, cancel = context.WithTimeout(ctx, dialRetryTimeout)
		defer cancel()
	}
	var wait backoff.Backoff
	for last := error(nil); ; {
		conn, dialer, err := c.attempt(ctx, endpoint)
		if err == nil {
			return conn, dialer, nil
		}
		// A refused connection after another failure: the server is restarting.
		again := isTransient(err) || last != nil && syserr.IsRefused(err)
		if ctx.Err() == nil {
			last = err
		}
		if again && wait.Wait(bound, 0) {
			continue
		}
		var credential *CredentialError
		switch {
		case errors.As(err, &credential):
			return nil, nil, err
		case ctx.Err() != nil && last != nil:
			err = fmt.Errorf("%w: %w", context.Cause(ctx), last)
		}
		return nil, nil, &DialError{URL: endpoint.displayURL(rawURL), Err: err}
	}
}

// dialRetryTimeout is how long Dial retries connections lost before the server has
// answered, if the caller sets no deadline.
const dialRetryTimeout = 30 * time.Second

// attempt connects once and blocks until the server has answered.
func (c *dialConfig) attempt(ctx context.Context, endpoint endpoint) (*grpc.ClientConn, *recordingDialer, error) {
	dialer := &recordingDialer{endpoint: endpoint}
	options, err := c.dialOptions(dialer)
	if err != nil {
		return nil, nil, err
	}
	dialer.relay.Trace = tracecontext.FromOutgoing(ctx)
	conn, err := grpc.NewClient("passthrough:///"+endpoint.authority, options...)
	if err != nil {
		return nil, nil, err
	}
	if err := waitReady(ctx, conn, dialer); err != nil {
		_ = conn.Close() // the reason for closing is the better error
		return nil, nil, err
	}
	return conn, dialer, nil
}

// WithTrace returns a context whose calls, and connections of [Dial], belong to a trace: the
// traceparent and tracestate of W3C Trace Context. Malformed
// ones are ignored.
func WithTrace(ctx context.Context, traceparent, tracestate string) context.Context {
	return tracecontext.NewOutgoing(ctx, tracecontext.Parse(traceparent, tracestate))
}

// endpoint is an address to dial and the authority of the server.
type endpoint struct {
	network, address, authority string
	tls                         bool
	relay                       string // the websocket URL at the rendezvous; empty without a relay
}

const urlSyntax = "write it as tcp://HOST:PORT, tls://HOST:PORT, unix:///PATH, ws://HOST:PORT, wss://HOST:PORT, stdio:COMMAND or relay+wss://HOST/executor/ID?role=harness"

func parseURL(rawURL string) (endpoint, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		shown, _, _ := strings.Cut(rawURL, "?") // the query may have a signature
		return endpoint{}, &URLError{URL: shown, Problem: urlSyntax}
	}
	switch u.Scheme {
	case "tcp", "tls", "grpc", "grpcs":
		return tcpEndpoint(rawURL, u)
	case "http", "https":
		return endpoint{}, &URLError{URL: rawURL, Problem: "http is for web clients: write it as tcp://HOST:PORT, or tls://HOST:PORT for https; " +
			"a hub needs the id of an executor, too"}
	case "unix":
		return unixEndpoint(rawURL, u)
	case schemeRelay, schemeRelayTLS:
		return relayEndpoint(rawURL, u)
	case schemeWebsocket, schemeWebsocketTLS, schemeLaunch:
		return endpoint{}, &URLError{URL: rawURL, Problem: "Connect does not support " + u.Scheme +
			":, use Dial; it supports tcp://, tls://, unix:// and relay+wss://"}
	default:
		return endpoint{}, &URLError{URL: rawURL, Problem: urlSyntax}
	}
}

func tcpEndpoint(rawURL string, u *url.URL) (endpoint, error) {
	switch {
	case u.Hostname() == "" || u.Port() == "":
		return endpoint{}, &URLError{URL: rawURL, Problem: "host and port are required: " + u.Scheme + "://HOST:PORT"}
	case strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.User != nil:
		return endpoint{}, &URLError{URL: rawURL, Problem: "nothing may follow or precede host and port: " + u.Scheme + "://HOST:PORT"}
	}
	return endpoint{network: "tcp", address: u.Host, authority: u.Host, tls: u.Scheme == "tls" || u.Scheme == "grpcs"}, nil
}

func unixEndpoint(rawURL string, u *url.URL) (endpoint, error) {
	if u.Host != "" || !strings.HasPrefix(u.Path, "/") {
		return endpoint{}, &URLError{URL: rawURL, Problem: "the path must be absolute: unix:///PATH"}
	}
	return endpoint{network: "unix", address: u.Path, authority: "localhost"}, nil
}

func dialOptions(dialer *recordingDialer) []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(dialer.dial),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepaliveInterval, Timeout: keepaliveTimeout}),
		grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(maxMessageBytes), grpc.MaxCallSendMsgSize(maxMessageBytes)),
		grpc.WithInitialWindowSize(streamWindowBytes),
		grpc.WithInitialConnWindowSize(connectionWindowBytes),
		grpc.WithReadBufferSize(socketBufferBytes),
		grpc.WithWriteBufferSize(socketBufferBytes),
		grpc.WithConnectParams(connectParams(keepaliveTimeout)),
		grpc.WithIdleTimeout(0),
	}
}

// connectParams pace attempts, each of which may take timeout. Run paces its own;
// a channel that sleeps for longer than those would make them fail without having
// tried.
func connectParams(timeout time.Duration) grpc.ConnectParams {
	return grpc.ConnectParams{
		Backoff: grpcbackoff.Config{
			BaseDelay: backoff.DefaultMin / 2, Multiplier: 1.6, Jitter: 0.2, MaxDelay: backoff.DefaultMax / 2,
		},
		MinConnectTimeout: timeout,
	}
}

// waitReady connects and returns nil once the server has answered.
func waitReady(ctx context.Context, conn *grpc.ClientConn, dialer *recordingDialer) error {
	conn.Connect()
	for {
		state := conn.GetState()
		switch state {
		case connectivity.Ready:
			return nil
		case connectivity.TransientFailure, connectivity.Shutdown:
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return dialer.lastError(ctx)
		case connectivity.Idle:
			conn.Connect() // the server answered, and the connection was lost
		}
		if !conn.WaitForStateChange(ctx, state) {
			return context.Cause(ctx)
		}
	}
}
