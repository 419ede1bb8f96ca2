package daemon_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/execwire/execwire/daemon"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/errorinfo"
	"github.com/execwire/execwire/internal/testcert"
)

const (
	onGRPC = iota
	onTLS
	onUnix
)

// locked is a daemon with a table of principals and one listener of each kind.
type locked struct {
	t       *testing.T
	ctx     context.Context
	dir     string
	daemon  *daemon.Daemon
	urls    []string
	log     *buffer
	ca      *testcert.Authority // issues the server's certificate
	clients *testcert.Authority // issues the clients' certificates
	wanted  config.Config       // what a reload reads
	invalid error               // what it fails with
}

// buffer is a log buffer for concurrent readers and writers.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// tokenOf returns the token of a principal.
func tokenOf(name string) string { return strings.Repeat(name+"-", 40/len(name)+1) + "token" }

// principal returns a table entry with a token and further lines.
func (l *locked) principal(name, allow string, lines ...string) string {
	l.t.Helper()
	path := testcert.WriteFile(l.t, filepath.Join(l.dir, name+".token"), []byte(tokenOf(name)+"\n"))
	return fmt.Sprintf("[[principal]]\nname = %q\ntoken_file = %q\nallow = [%s]\n%s\n", name, path, allow, strings.Join(lines, "\n"))
}

func (l *locked) writeTable(text string) string {
	l.t.Helper()
	return testcert.WriteFile(l.t, filepath.Join(l.dir, "principals.toml"), []byte(text))
}

// lock runs a daemon with the table that table returns.
func lock(t *testing.T, change func(*config.Config), table func(l *locked) string) *locked {
	t.Helper()
	l := &locked{t: t, dir: t.TempDir(), log: &buffer{}, ca: testcert.NewAuthority(t), clients: testcert.NewAuthority(t)}
	cfg := config.Default()
	cfg.Listen = []string{"tcp://127.0.0.1:0", "tls://127.0.0.1:0", "unix://" + filepath.Join(l.dir, "s")}
	cfg.TLSCertificate, cfg.TLSKey = l.ca.Issue("server").Write(t, l.dir, "server")
	cfg.TLSClientCA = testcert.WriteFile(t, filepath.Join(l.dir, "clients.pem"), l.clients.PEM)
	cfg.Principals = l.writeTable(table(l))
	change(&cfg)
	l.wanted = cfg
	listening := make(chan string, len(cfg.Listen))
	var err error
	l.daemon, err = daemon.New(cfg, daemon.Options{
		OnListen:   func(url string) { listening <- url },
		LoadConfig: func() (config.Config, error) { return l.wanted, l.invalid },
		Logger:     slog.New(slog.NewTextHandler(l.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), testTimeout, errors.New("the test hangs"))
	l.ctx = ctx
	stopped, stop := context.WithCancelCause(ctx)
	done := make(chan error, 1)
	go func() { done <- l.daemon.Serve(stopped, stopped) }()
	for range cfg.Listen {
		select {
		case url := <-listening:
			l.urls = append(l.urls, url)
		case err := <-done:
			t.Fatalf("Serve = %v", err)
		}
	}
	t.Cleanup(func() {
		stop(errors.New("the test is over"))
		if err := <-done; err != nil {
			t.Errorf("Serve = %v", err)
		}
		cancel()
	})
	return l
}

// unchanged leaves the configuration as it is.
func unchanged(*config.Config) {}

// dial connects to a listener. With TLS it uses the client certificates.
func (l *locked) dial(listener int, pairs ...testcert.Pair) *grpc.ClientConn {
	l.t.Helper()
	u, err := url.Parse(l.urls[listener])
	if err != nil {
		l.t.Fatal(err)
	}
	target, creds := "passthrough:///"+u.Host, insecure.NewCredentials()
	switch listener {
	case onUnix:
		target = l.urls[listener]
	case onTLS:
		config := &tls.Config{RootCAs: l.ca.Pool()}
		for _, pair := range pairs {
			certificate := pair.TLS(l.t)
			config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &certificate, nil }
		}
		creds = credentials.NewTLS(config)
	}
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(creds))
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// showing returns a context whose calls carry an authorization header and on-behalf-of names.
func (l *locked) showing(authorization string, onBehalfOf ...string) context.Context {
	ctx := l.ctx
	if authorization != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", authorization)
	}
	for _, name := range onBehalfOf {
		ctx = metadata.AppendToOutgoingContext(ctx, "execwire-on-behalf-of", name)
	}
	return ctx
}

// as returns a context whose calls carry the token of a principal.
func (l *locked) as(name string, onBehalfOf ...string) context.Context {
	return l.showing("Bearer "+tokenOf(name), onBehalfOf...)
}

// list makes a call that needs the permission view.
func list(ctx context.Context, conn grpc.ClientConnInterface) error {
	_, err := execwirev1.NewProcessServiceClient(conn).ListProcesses(ctx, &execwirev1.ListProcessesRequest{})
	return err
}

func (l *locked) expect(err error, code codes.Code, want string) {
	l.t.Helper()
	if status.Code(err) != code || errorinfo.Of(err).GetReason() != want {
		l.t.Errorf("got %v with reason %q, want %v with %q", err, errorinfo.Of(err).GetReason(), code, want)
	}
}

func (l *locked) expectUnknown(err error) {
	l.t.Helper()
	l.expect(err, codes.Unauthenticated, "UNAUTHENTICATED")
	// The text is the same for every reason.
	const text = "the caller is not known here: show a token or a certificate that the server's table of principals has"
	if got := status.Convert(err).Message(); got != text {
		l.t.Errorf("the error for the caller is %q", got)
	}
}

// serveOnce runs Serve until the first listener is open, and returns its result.
func serveOnce(t *testing.T, change func(*config.Config)) error {
	t.Helper()
	cfg := config.Default()
	change(&cfg)
	ctx, stop := context.WithCancelCause(t.Context())
	defer stop(nil)
	d, err := daemon.New(cfg, daemon.Options{OnListen: func(string) { stop(errors.New("the listener is open")) }})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	return d.Serve(ctx, ctx)
}
