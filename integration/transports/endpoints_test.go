package transports

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/daemon"
	"github.com/execwire/execwire/integration/harness"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/testcert"
	"github.com/execwire/execwire/relay/hub"
)

// protocol is the protocol of an endpoint, on which it depends what a client can do.
type protocol string

const (
	// protocolGRPC is the gRPC services.
	protocolGRPC protocol = "gRPC"
	// protocolJSONRPC is the exec-server protocol of our server.
	protocolJSONRPC protocol = "JSON-RPC"
	// protocolReferenceOld and protocolReferenceNew are what the versions of the reference
	// implement of it, on a server that has nothing else.
	protocolReferenceOld protocol = "JSON-RPC of 0.132.0"
	protocolReferenceNew protocol = "JSON-RPC of 0.169.0"
)

// endpoint is a way to connect a client of the SDK, with a server of its own.
type endpoint struct {
	name     string
	protocol protocol
	// distant reports whether it is tested only when all tests run: another endpoint has the same
	// properties.
	distant bool
	// lasting reports whether its connections survive a cut.
	lasting bool
	// open starts a server that ends with the test.
	open func(t testing.TB) *site
}

// endpoints are all ways in which the SDK connects.
var endpoints = []endpoint{
	{name: "in process", protocol: protocolGRPC, open: openInProcess},
	{name: "unix", protocol: protocolGRPC, open: func(t testing.TB) *site {
		return openListener(t, "unix://"+filepath.Join(harness.ShortDir(t), "s"), nil)
	}},
	{name: "grpc", protocol: protocolGRPC, distant: true, open: func(t testing.TB) *site {
		return openListener(t, "grpc://127.0.0.1:0", nil)
	}},
	{name: "grpcs with a certificate", protocol: protocolGRPC, distant: true, open: openWithCertificate},
	{name: "grpcs with a token", protocol: protocolGRPC, distant: true, open: openWithToken},
	{name: "relay", protocol: protocolGRPC, distant: true, lasting: true, open: openRelay},
	{name: "ws", protocol: protocolJSONRPC, open: func(t testing.TB) *site { return openListener(t, "ws://127.0.0.1:0", nil) }},
	{name: "stdio", protocol: protocolJSONRPC, distant: true, open: openCommand},
	{name: "wss with a token", protocol: protocolJSONRPC, distant: true, open: openSecureWebsocket},
	{name: "a gateway", protocol: protocolJSONRPC, distant: true, open: openGateway},
	{name: "as 0.132.0", protocol: protocolReferenceOld, distant: true, open: func(t testing.TB) *site { return openReference(t, olderContract()) }},
	{name: "as 0.169.0", protocol: protocolReferenceNew, distant: true, open: func(t testing.TB) *site { return openReference(t, newerContract()) }},
}

// site is a server and the way in which clients reach it.
type site struct {
	// url and options are the arguments of Dial, or of daemon.Open.
	url     string
	options []client.Option
	// network and address are where a proxy can connect; empty in process.
	network, address string
	// reference is the server that imitates the reference, if there is one.
	reference *referenceServer
	// adds has the variables that the server adds to environments made by a policy, as a name and
	// its "=", or as a prefix.
	adds []string
}

// dial connects a client that the test closes.
func (s *site) dial(t testing.TB) *client.Client {
	t.Helper()
	if s.url == daemon.LocalURL {
		return s.dialLocal(t)
	}
	return s.dialURL(t, s.url)
}

// dialLocal connects a client to a server embedded in this program.
func (s *site) dialLocal(t testing.TB) *client.Client {
	t.Helper()
	c, err := daemon.Open(harness.Context(t), s.url, daemon.OpenOptions{Daemon: daemon.Options{
		Environ: siteEnvironment, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return c
}

func (s *site) dialURL(t testing.TB, url string) *client.Client {
	t.Helper()
	c, err := client.Dial(harness.Context(t), url, s.options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// dialThrough connects a client through a proxy that cuts connections.
func (s *site) dialThrough(t testing.TB) (*client.Client, *harness.Proxy) {
	t.Helper()
	wire := harness.NewProxy(t, s.network, s.address)
	return s.dialURL(t, strings.Replace(s.url, s.address, wire.Listener.Addr().String(), 1)), wire
}

func openInProcess(testing.TB) *site { return &site{url: daemon.LocalURL} }

// openCommand makes every client start a server of its own.
func openCommand(testing.TB) *site {
	return &site{url: "stdio:", options: []client.Option{
		client.WithLaunchCommand(client.LaunchCommand{Argv: []string{harness.Execwire, "serve", "--listen", "stdio"}, Env: siteEnvironment})}}
}

// siteEnvironment is the environment of the server, which policies refer to.
var siteEnvironment = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/home/site", "SITE=here", "SITE_TOKEN=secret", "GORACE=atexit_sleep_ms=0"}

// openListener serves one transport.
func openListener(t testing.TB, url string, tune func(*config.Config), options ...client.Option) *site {
	t.Helper()
	s := harness.NewServerIn(t, siteEnvironment, func(cfg *config.Config) {
		cfg.Listen = []string{url}
		if tune != nil {
			tune(cfg)
		}
	})
	at := &site{options: options, network: "tcp"}
	for d, bound := range s.URLs {
		at.url, at.address = bound, harness.AddressOf(bound)
		if d == harness.UnixTransport {
			at.network = d.Network()
		}
	}
	return at
}

// openTLS serves gRPC with TLS to the principals of a table.
func openTLS(t testing.TB, dir, scheme string, authority *testcert.Authority, principal string, options ...client.Option) *site {
	t.Helper()
	return openListener(t, scheme+"://127.0.0.1:0", func(cfg *config.Config) {
		cfg.TLSCertificate, cfg.TLSKey = authority.Issue("server").Write(t, dir, "server")
		cfg.TLSClientCA = filepath.Join(dir, "ca.pem")
		cfg.Principals = testcert.WriteFile(t, filepath.Join(dir, "principals.toml"),
			[]byte("[[principal]]\nname = 'somebody'\nallow = ['all']\n"+principal+"\n"))
	}, options...)
}

// authorityIn returns an authority whose certificate is in a new directory.
func authorityIn(t testing.TB) (dir, file string, authority *testcert.Authority) {
	t.Helper()
	dir, authority = harness.ShortDir(t), testcert.NewAuthority(t)
	return dir, testcert.WriteFile(t, filepath.Join(dir, "ca.pem"), authority.PEM), authority
}

func openWithCertificate(t testing.TB) *site {
	dir, ca, authority := authorityIn(t)
	certificate, key := authority.Issue("somebody").Write(t, dir, "client")
	return openTLS(t, dir, "grpcs", authority, "certificates = ['dns:localhost']",
		client.WithTLS(client.TLSFiles{CA: ca, Certificate: certificate, Key: key}))
}

func openWithToken(t testing.TB) *site { return openWithTokenAt(t, "grpcs") }

func openSecureWebsocket(t testing.TB) *site { return openWithTokenAt(t, "wss") }

func openWithTokenAt(t testing.TB, scheme string) *site {
	dir, ca, authority := authorityIn(t)
	token := testcert.WriteFile(t, filepath.Join(dir, "token"), []byte(strings.Repeat("aTokenThatNobodyGuesses", 2)))
	return openTLS(t, dir, scheme, authority, fmt.Sprintf("token_file = %q", token),
		client.WithTLS(client.TLSFiles{CA: ca}), client.WithTokenFile(token))
}

// openGateway serves gRPC, and clients connect to a gateway to it.
func openGateway(t testing.TB) *site {
	t.Helper()
	core := openListener(t, "unix://"+filepath.Join(harness.ShortDir(t), "s"), nil)
	upstream, err := client.Connect(harness.Context(t), core.url)
	if err != nil {
		t.Fatal(err)
	}
	cfg := config.Default()
	cfg.Listen = []string{"ws://127.0.0.1:0"}
	listening, ended := make(chan string, 1), make(chan error, 1)
	g, err := daemon.NewGateway(cfg, upstream, daemon.GatewayOptions{
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), OnListen: func(url string) { listening <- url }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancelCause(context.Background())
	go func() { ended <- g.Serve(ctx) }()
	t.Cleanup(func() {
		stop(harness.ErrStop)
		if err := errors.Join(<-ended, upstream.Close()); err != nil {
			t.Errorf("the gateway ended with %v", err)
		}
	})
	url := <-listening
	return &site{url: url, network: "tcp", address: harness.AddressOf(url)}
}

// openReference serves as the reference does.
func openReference(t testing.TB, c contract) *site {
	t.Helper()
	behind := openListener(t, "ws://127.0.0.1:0", nil)
	r := newReferenceServer(t, c, behind.url)
	address := r.listener.Addr().String()
	return &site{url: "ws://" + address, network: "tcp", address: address, reference: r}
}

// openRelay serves as an executor of a hub.
func openRelay(t testing.TB) *site {
	t.Helper()
	listening, ended := make(chan string, 1), make(chan error, 1)
	cfg := config.DefaultHub()
	cfg.Listen = []string{"http://127.0.0.1:0"}
	logger := slog.New(slog.NewTextHandler(t.Output(), nil))
	h, err := hub.New(cfg, hub.Options{Logger: logger, OnListen: func(url string) { listening <- url }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancelCause(context.Background())
	go func() { ended <- h.Serve(ctx) }()
	t.Cleanup(func() {
		stop(harness.ErrStop)
		if err := <-ended; err != nil {
			t.Errorf("the hub ended with %v", err)
		}
	})
	hubURL := <-listening
	harness.NewServerIn(t, siteEnvironment, func(cfg *config.Config) {
		cfg.Listen, cfg.RemoteURL, cfg.ExecutorID = []string{"off"}, hubURL, harness.ExecutorID
	})
	harness.Eventually(t, "the executor is connected", func() bool {
		list, err := client.Executors(ctx, hubURL)
		return err == nil && len(list) == 1 && list[0].Connected
	})
	url, err := client.RelayURL(hubURL, harness.ExecutorID)
	if err != nil {
		t.Fatal(err)
	}
	return &site{url: url, network: "tcp", address: harness.AddressOf(hubURL)}
}
