package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	grpcbackoff "google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/execwire/execwire/internal/backoff"
	"github.com/execwire/execwire/relay/harness"
)

const (
	keepaliveInterval = 30 * time.Second
	keepaliveTimeout  = 10 * time.Second

	// Windows are static once set, so both are: a connection carries several
	// streams at full rate, and a stream one bandwidth-delay product of a long
	// fast path.
	streamWindowBytes     = 8 << 20
	connectionWindowBytes = 16 << 20
	socketBufferBytes     = 128 << 10

	maxMessageBytes = 16 << 20
)

// Option changes how [Dial] connects.
type Option func(*dialConfig)

type dialConfig struct {
	grpc      []grpc.DialOption
	tls       TLSFiles
	tokenFile string         // empty: no token
	launch    *LaunchCommand // nil: the URL says what
	name      string         // empty: that of each protocol
}

// WithDialOptions adds options of gRPC, applied after those of Dial itself.
func WithDialOptions(options ...grpc.DialOption) Option {
	return func(c *dialConfig) { c.grpc = append(c.grpc, options...) }
}

// DialError says that a server could not be reached.
type DialError struct {
	// URL is what Dial was given.
	URL string
	// Err is why: an error of the operating system where there is one, or the
	// cause of the context that ended.
	Err error
}

func (e *DialError) Error() string { return fmt.Sprintf("failed to reach %s: %v", e.URL, e.Err) }

func (e *DialError) Unwrap() error { return e.Err }

// URLError says that a server URL is not one this build can dial.
type URLError struct {
	// URL is what Dial was given.
	URL string
	// Problem is what is wrong with it and what would be right.
	Problem string
}

func (e *URLError) Error() string {
	return fmt.Sprintf("failed to parse server URL %q: %s", e.URL, e.Problem)
}

// Dial connects to the server at rawURL: grpc://HOST:PORT, grpcs://HOST:PORT
// with TLS, unix:///PATH, or relay+wss://HOST/executor/ID?role=harness, which is
// the executor ID of a relay; [RelayURL] makes such URLs. At ws://HOST:PORT and
// wss://HOST:PORT is a server of the exec-server protocol, ours or the reference,
// and stdio:COMMAND starts one: a command line without a shell, for which
// [WithLaunchCommand] is exact. It ends with the client, and the client with it:
// package execserver says what the protocol has no words for. It blocks until the server has answered, it is
// known that none can ([*DialError]), or ctx is done. Nothing that listens, a refusal and
// an answer that is not gRPC are known at once. A connection that is lost before the
// server has answered is made again until ctx is done, for 30 seconds if ctx has no
// deadline. A token is shown by calls
// only, so a wrong one is told by the first of them; to a relay it is shown in
// connecting. A connection that is lost
// later is made again when it is needed. The caller closes the client.
func Dial(ctx context.Context, rawURL string, options ...Option) (*Client, error) {
	if execServerScheme(rawURL) != "" {
		var config dialConfig
		for _, option := range options {
			option(&config)
		}
		conn, err := config.dialExecServer(ctx, rawURL)
		if err != nil {
			return nil, err
		}
		return NewOwning(conn, conn), nil
	}
	conn, dialer, err := connect(ctx, rawURL, options)
	if err != nil {
		return nil, err
	}
	c := NewOwning(conn, conn)
	c.life.refusal = dialer.refusal
	if dialer.endpoint.relay != "" {
		c.life.heardAt = dialer.heardAt
	}
	return c, nil
}

// Connect is [Dial] for generated clients: it returns the connection alone, which
// the caller closes.
func Connect(ctx context.Context, rawURL string, options ...Option) (*grpc.ClientConn, error) {
	conn, _, err := connect(ctx, rawURL, options)
	return conn, err
}

func connect(ctx context.Context, rawURL string, options []Option) (*grpc.ClientConn, *recordingDialer, error) {
	endpoint, err := parseURL(rawURL)
	if err != nil {
		return nil, nil, err
	}
	var config dialConfig
	for _, option := range options {
		option(&config)
	}
	bound := ctx
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		bound, cancel = context.WithTimeout(ctx, connectPatience)
		defer cancel()
	}
	var wait backoff.Backoff
	for last := error(nil); ; {
		conn, dialer, err := config.attempt(ctx, endpoint)
		if err == nil {
			return conn, dialer, nil
		}
		// A server that is gone after it was there is being started again.
		again := isTransient(err) || last != nil && errors.Is(err, syscall.ECONNREFUSED)
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
		return nil, nil, &DialError{URL: endpoint.shown(rawURL), Err: err}
	}
}

// connectPatience is for how long connections are made again that are lost before the
// server has answered, if the caller does not say.
const connectPatience = 30 * time.Second

// attempt connects once, and blocks until the server has answered.
func (c *dialConfig) attempt(ctx context.Context, endpoint endpoint) (*grpc.ClientConn, *recordingDialer, error) {
	dialer := &recordingDialer{endpoint: endpoint}
	options, err := c.dialOptions(dialer)
	if err != nil {
		return nil, nil, err
	}
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

// endpoint is an address to dial and the name the server goes by there.
type endpoint struct {
	network, address, authority string
	tls                         bool
	relay                       string // the websocket at the rendezvous; empty is no relay
}

const howToWrite = "write it as grpc://HOST:PORT, grpcs://HOST:PORT, unix:///PATH, ws://HOST:PORT, wss://HOST:PORT, stdio:COMMAND or relay+wss://HOST/executor/ID?role=harness"

func parseURL(rawURL string) (endpoint, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		shown, _, _ := strings.Cut(rawURL, "?") // what follows may be a signature
		return endpoint{}, &URLError{URL: shown, Problem: howToWrite}
	}
	switch u.Scheme {
	case "grpc", "grpcs":
		return tcpEndpoint(rawURL, u)
	case "unix":
		return unixEndpoint(rawURL, u)
	case schemeRelay, schemeRelayTLS:
		return relayEndpoint(rawURL, u)
	case schemeWebsocket, schemeWebsocketTLS, schemeLaunch:
		return endpoint{}, &URLError{URL: rawURL, Problem: "a connection of gRPC alone cannot be made to " + u.Scheme +
			":, only a client by Dial; there are grpc://, grpcs://, unix:// and relay+wss://"}
	default:
		return endpoint{}, &URLError{URL: rawURL, Problem: howToWrite}
	}
}

func tcpEndpoint(rawURL string, u *url.URL) (endpoint, error) {
	switch {
	case u.Hostname() == "" || u.Port() == "":
		return endpoint{}, &URLError{URL: rawURL, Problem: "host and port are required: " + u.Scheme + "://HOST:PORT"}
	case strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.User != nil:
		return endpoint{}, &URLError{URL: rawURL, Problem: "nothing may follow or precede host and port: " + u.Scheme + "://HOST:PORT"}
	}
	return endpoint{network: "tcp", address: u.Host, authority: u.Host, tls: u.Scheme == "grpcs"}, nil
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
			BaseDelay: backoff.DefaultFirst / 2, Multiplier: 1.6, Jitter: 0.2, MaxDelay: backoff.DefaultMost / 2,
		},
		MinConnectTimeout: timeout,
	}
}

// recordingDialer dials one endpoint and remembers why it last failed, which
// the states of a channel do not tell.
type recordingDialer struct {
	endpoint endpoint
	// private is whether nobody beyond this host may hear what is said.
	private bool
	// relay is what to show the rendezvous, if the endpoint is behind one.
	relay harness.Options

	mu  sync.Mutex
	err error // guarded by mu
	// refused is why the last attempt was the last that is worth making; nil if
	// it was not; guarded by mu.
	refused error
	// current is the latest connection through a relay; guarded by mu.
	current *harness.Conn
}

func (d *recordingDialer) dial(ctx context.Context, _ string) (net.Conn, error) {
	conn, err := d.connect(ctx)
	d.setRefused(err)
	if err != nil {
		d.record(err)
	}
	return conn, err
}

func (d *recordingDialer) connect(ctx context.Context) (net.Conn, error) {
	if d.endpoint.relay != "" {
		return d.connectRelay(ctx)
	}
	if d.private {
		if err := checkPrivate(d.endpoint.address); err != nil {
			return nil, err
		}
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, d.endpoint.network, d.endpoint.address)
	if err == nil && d.private {
		if err := checkPrivate(conn.RemoteAddr().String()); err != nil {
			_ = conn.Close() // nothing was said
			return nil, err
		}
	}
	return conn, err
}

// record remembers a failure. A later attempt that comes further does not undo
// it: it may begin before anybody has asked.
func (d *recordingDialer) record(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = err
}

// lastError is why the last attempt failed. It may ask the server.
func (d *recordingDialer) lastError(ctx context.Context) error {
	d.mu.Lock()
	err := d.err
	d.mu.Unlock()
	switch relay, lost := d.endpoint.relay != "", isLost(err); {
	case relay && lost && !d.endpoint.tls && !d.speaksTLS(ctx):
		return err
	case relay && err != nil:
		return explainHubTLS(err, d.endpoint.tls)
	case d.endpoint.tls && !relay && lost && d.speaksPlain(ctx):
		return &TLSError{Fix: "what listens there does not speak TLS: if it is on this host, dial grpc://", Err: err}
	case err != nil:
		return explainTLS(err, "grpc")
	case d.endpoint.tls && !relay:
		return d.notGRPC() // the end of the connection would have been recorded
	}
	return d.probe(ctx)
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
			conn.Connect() // it answered, and the connection was lost
		}
		if !conn.WaitForStateChange(ctx, state) {
			return context.Cause(ctx)
		}
	}
}
