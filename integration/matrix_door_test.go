package integration

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
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/testcert"
	"github.com/execwire/execwire/relay/hub"
)

// protocol is what is spoken behind an entrance, by which it differs what a
// client can have done.
type protocol string

const (
	// spokenGRPC is the services themselves.
	spokenGRPC protocol = "gRPC"
	// spokenJSON is the exec-server protocol, by a server of ours.
	spokenJSON protocol = "JSON-RPC"
	// spokenOlder and spokenNewer are what the versions of the reference have of
	// it, by a server that has nothing else.
	spokenOlder protocol = "JSON-RPC of 0.132.0"
	spokenNewer protocol = "JSON-RPC of 0.169.0"
)

// entrance is a door as a client of the SDK comes in by it, with a server of its
// own behind it.
type entrance struct {
	name   string
	speaks protocol
	// distant is whether it is for the run of all tests alone: what is special
	// about it is shown by another one too.
	distant bool
	// lasting is whether its connections live on when the wire is cut.
	lasting bool
	// open starts the server, which ends with the test.
	open func(t testing.TB) *site
}

// entrances are all ways in that the SDK has.
var entrances = []entrance{
	{name: "in process", speaks: spokenGRPC, open: openInProcess},
	{name: "unix", speaks: spokenGRPC, open: func(t testing.TB) *site {
		return openListener(t, "unix://"+filepath.Join(shortDir(t), "s"), nil)
	}},
	{name: "grpc", speaks: spokenGRPC, distant: true, open: func(t testing.TB) *site {
		return openListener(t, "grpc://127.0.0.1:0", nil)
	}},
	{name: "grpcs with a certificate", speaks: spokenGRPC, distant: true, open: openWithCertificate},
	{name: "grpcs with a token", speaks: spokenGRPC, distant: true, open: openWithToken},
	{name: "relay", speaks: spokenGRPC, distant: true, lasting: true, open: openRelay},
	{name: "ws", speaks: spokenJSON, open: func(t testing.TB) *site { return openListener(t, "ws://127.0.0.1:0", nil) }},
	{name: "stdio", speaks: spokenJSON, distant: true, open: openCommand},
	{name: "wss with a token", speaks: spokenJSON, distant: true, open: openSecureWebsocket},
	{name: "a gateway", speaks: spokenJSON, distant: true, open: openGateway},
	{name: "as 0.132.0", speaks: spokenOlder, distant: true, open: func(t testing.TB) *site { return openReference(t, olderContract()) }},
	{name: "as 0.169.0", speaks: spokenNewer, distant: true, open: func(t testing.TB) *site { return openReference(t, newerContract()) }},
}

// site is a server and how clients reach it.
type site struct {
	// url and options are what Dial takes, or daemon.Open.
	url     string
	options []client.Option
	// network and address are what there is to put a proxy before; empty in
	// process.
	network, address string
	// reference is the server that stands for the reference, if one does.
	reference *referenceServer
	// adds is what the server itself adds to environments that it makes by a policy,
	// as a name and its "=", or the beginning of a variable that goes on after it.
	adds []string
}

// dial connects a client, which the test closes.
func (s *site) dial(t testing.TB) *client.Client {
	t.Helper()
	if s.url == daemon.LocalURL {
		return s.dialLocal(t)
	}
	return s.dialURL(t, s.url)
}

// dialLocal has a client with a server of its own in this program.
func (s *site) dialLocal(t testing.TB) *client.Client {
	t.Helper()
	c, err := daemon.Open(testContext(t), s.url, daemon.OpenOptions{Daemon: daemon.Options{
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
	c, err := client.Dial(testContext(t), url, s.options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// dialThrough connects a client through a wire that can be damaged.
func (s *site) dialThrough(t testing.TB) (*client.Client, *proxy) {
	t.Helper()
	wire := newProxy(t, s.network, s.address)
	return s.dialURL(t, strings.Replace(s.url, s.address, wire.listener.Addr().String(), 1)), wire
}

func openInProcess(testing.TB) *site { return &site{url: daemon.LocalURL} }

// openCommand has every client start a server of its own.
func openCommand(testing.TB) *site {
	return &site{url: "stdio:", options: []client.Option{
		client.WithLaunchCommand(client.LaunchCommand{Argv: []string{execwire, "serve", "--listen", "stdio"}, Env: siteEnvironment})}}
}

// siteEnvironment is what policies for the environment take from.
var siteEnvironment = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/home/site", "SITE=here", "SITE_TOKEN=secret", "GORACE=atexit_sleep_ms=0"}

// openListener serves at one door.
func openListener(t testing.TB, url string, tune func(*config.Config), options ...client.Option) *site {
	t.Helper()
	s := newServerIn(t, siteEnvironment, func(cfg *config.Config) {
		cfg.Listen = []string{url}
		if tune != nil {
			tune(cfg)
		}
	})
	at := &site{options: options, network: "tcp"}
	for d, bound := range s.urls {
		at.url, at.address = bound, addressIn(bound)
		if d == unixDoor {
			at.network = d.network()
		}
	}
	return at
}

// openTLS serves gRPC with TLS to whom the table of principals lets in.
func openTLS(t testing.TB, dir, scheme string, authority *testcert.Authority, principal string, options ...client.Option) *site {
	t.Helper()
	return openListener(t, scheme+"://127.0.0.1:0", func(cfg *config.Config) {
		cfg.TLSCertificate, cfg.TLSKey = authority.Issue("server").Write(t, dir, "server")
		cfg.TLSClientCA = filepath.Join(dir, "ca.pem")
		cfg.Principals = testcert.WriteFile(t, filepath.Join(dir, "principals.toml"),
			[]byte("[[principal]]\nname = 'somebody'\nallow = ['all']\n"+principal+"\n"))
	}, options...)
}

// authorityIn is an authority whose certificate is in a new directory.
func authorityIn(t testing.TB) (dir, file string, authority *testcert.Authority) {
	t.Helper()
	dir, authority = shortDir(t), testcert.NewAuthority(t)
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

// openGateway serves gRPC, and what is dialed is a gateway to it.
func openGateway(t testing.TB) *site {
	t.Helper()
	core := openListener(t, "unix://"+filepath.Join(shortDir(t), "s"), nil)
	upstream, err := client.Connect(testContext(t), core.url)
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
		stop(errStop)
		if err := errors.Join(<-ended, upstream.Close()); err != nil {
			t.Errorf("the gateway ended with %v", err)
		}
	})
	url := <-listening
	return &site{url: url, network: "tcp", address: addressIn(url)}
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
		stop(errStop)
		if err := <-ended; err != nil {
			t.Errorf("the hub ended with %v", err)
		}
	})
	hubURL := <-listening
	newServerIn(t, siteEnvironment, func(cfg *config.Config) {
		cfg.Listen, cfg.RemoteURL, cfg.ExecutorID = []string{"off"}, hubURL, executorID
	})
	eventually(t, "the executor is connected", func() bool {
		list, err := client.Executors(ctx, hubURL)
		return err == nil && len(list) == 1 && list[0].Connected
	})
	url, err := client.RelayURL(hubURL, executorID)
	if err != nil {
		t.Fatal(err)
	}
	return &site{url: url, network: "tcp", address: addressIn(hubURL)}
}
