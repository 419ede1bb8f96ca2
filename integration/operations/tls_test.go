package operations

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/testcert"
	"github.com/execwire/execwire/internal/testproc"
)

// tlsServer is a server with a TLS listener, the tokens of two principals, and a proxy
// in front of it.
type tlsServer struct {
	wire   *harness.Proxy
	url    string
	roots  client.Option
	tokens map[string]string // files, by principal
}

func newTLSServer(t *testing.T) *tlsServer {
	t.Helper()
	dir := harness.ShortDir(t)
	write := func(name, content string) string {
		return testcert.WriteFile(t, filepath.Join(dir, name), []byte(content))
	}
	authority := testcert.NewAuthority(t)
	l := &tlsServer{tokens: map[string]string{}}
	table := ""
	for _, name := range []string{"ann", "bob"} {
		l.tokens[name] = write(name, strings.Repeat(name, 12))
		table += fmt.Sprintf("[[principal]]\nname=%q\ntoken_file=%q\nallow=['all']\n", name, l.tokens[name])
	}
	s := harness.NewServer(t, func(cfg *config.Config) {
		cfg.Listen = []string{"grpcs://127.0.0.1:0"}
		cfg.TLSCertificate, cfg.TLSKey = authority.Issue("server").Write(t, dir, "server")
		cfg.Principals = write("principals.toml", table)
	})
	l.roots = client.WithTLS(client.TLSFiles{CA: write("ca.pem", string(authority.PEM))})
	l.wire = harness.NewProxy(t, "tcp", strings.TrimPrefix(s.URLs[harness.TCPTransport], "grpcs://"))
	l.url = "grpcs://" + l.wire.Listener.Addr().String()
	return l
}

func (l *tlsServer) dial(t *testing.T, ctx context.Context, name string) *client.Client {
	t.Helper()
	c, err := client.Dial(ctx, l.url, l.roots, client.WithTokenFile(l.tokens[name]))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Over TLS too, output is delivered exactly once across cuts, and principals are
// isolated from each other.
func TestTLSListener_Cuts_LosesNothing(t *testing.T) {
	harness.Waits(t)
	const size = 8<<20 + 3
	l := newTLSServer(t)
	ctx := harness.Context(t)
	ann, bob := l.dial(t, ctx, "ann"), l.dial(t, ctx, "bob")
	seed := rand.Uint64()
	defer func() {
		if t.Failed() {
			t.Logf("the seed was %d", seed)
		}
	}()
	stop := func() {}
	slam := func(*execwirev1.Process) {
		stop = harness.CutConnections(l.wire, rand.New(rand.NewPCG(seed, 0)), size/8)
	} // what was never reached is not tried again
	stdout := testproc.StdoutPattern.NewVerifier()
	request := harness.Direct(harness.ThenExit(37, harness.Program("flood", "-bytes", fmt.Sprint(size)))...)
	request.ProcessId = "hers"
	exit, err := ann.Run(ctx, client.RunOptions{Process: request, Stdout: stdout, OnStarted: slam})
	stop()
	if err != nil || exit.Code != 37 || stdout.Offset() != size {
		t.Errorf("Run = %+v, %v after %d of %d bytes; want exit code 37", exit, err, stdout.Offset(), size)
	}
	if exit.Resumed == 0 {
		t.Error("the connection never broke, which shows nothing")
	}
	l.wire.CutAfter(func() int64 { return 1 << 40 })
	for name, c := range map[string]*client.Client{"ann": ann, "bob": bob} {
		_, err := c.Run(ctx, client.RunOptions{Process: harness.Direct(harness.Shell("true")...)}) // connects again
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Processes().GetProcess(ctx, &execwirev1.GetProcessRequest{ProcessId: "hers"})
		if hers := name == "ann"; hers && err != nil || !hers && client.Reason(err) != execwirev1.ErrorReason_ERROR_REASON_PROCESS_NOT_FOUND {
			t.Errorf("%s gets %v", name, err)
		}
	}
	// Without a credential there is nothing but whether the server is well.
	nobody, err := client.Dial(ctx, l.url, l.roots)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = nobody.Close() }()
	if _, err := nobody.Run(ctx, client.RunOptions{Process: harness.Direct(harness.Shell("true")...)}); client.Reason(err) != execwirev1.ErrorReason_ERROR_REASON_UNAUTHENTICATED {
		t.Errorf("without a token: %v", err)
	}
}
