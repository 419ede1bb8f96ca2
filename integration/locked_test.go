package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/testcert"
	"github.com/execwire/execwire/internal/testproc"
)

// locked is a server at a door with TLS, two principals that it lets in, and a
// wire to it.
type locked struct {
	wire   *proxy
	url    string
	trust  client.Option
	tokens map[string]string // files, by principal
}

func newLocked(t *testing.T) *locked {
	t.Helper()
	dir := shortDir(t)
	write := func(name, content string) string {
		return testcert.WriteFile(t, filepath.Join(dir, name), []byte(content))
	}
	authority := testcert.NewAuthority(t)
	l := &locked{tokens: map[string]string{}}
	table := ""
	for _, name := range []string{"ann", "bob"} {
		l.tokens[name] = write(name, strings.Repeat(name, 12))
		table += fmt.Sprintf("[[principal]]\nname=%q\ntoken_file=%q\nallow=['all']\n", name, l.tokens[name])
	}
	s := newServer(t, func(cfg *config.Config) {
		cfg.Listen = []string{"grpcs://127.0.0.1:0"}
		cfg.TLSCertificate, cfg.TLSKey = authority.Issue("server").Write(t, dir, "server")
		cfg.Principals = write("principals.toml", table)
	})
	l.trust = client.WithTLS(client.TLSFiles{CA: write("ca.pem", string(authority.PEM))})
	l.wire = newProxy(t, "tcp", strings.TrimPrefix(s.urls[tcpDoor], "grpcs://"))
	l.url = "grpcs://" + l.wire.listener.Addr().String()
	return l
}

func (l *locked) dial(t *testing.T, ctx context.Context, name string) *client.Client {
	t.Helper()
	c, err := client.Dial(ctx, l.url, l.trust, client.WithTokenFile(l.tokens[name]))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// A locked door keeps the promises of the others: nothing is lost or said twice
// when it is slammed, and one principal does not see what another does.
func TestALockedDoorKeepsThePromises(t *testing.T) {
	waits(t)
	const size = 8<<20 + 3
	l := newLocked(t)
	ctx := testContext(t)
	ann, bob := l.dial(t, ctx, "ann"), l.dial(t, ctx, "bob")
	seed := rand.Uint64()
	defer func() {
		if t.Failed() {
			t.Logf("the seed was %d", seed)
		}
	}()
	stop := func() {}
	slam := func(*execwirev1.Process) { stop = harass(l.wire, rand.New(rand.NewPCG(seed, 0)), size/8) } // what was never reached is not tried again
	stdout := testproc.StdoutPattern.NewVerifier()
	request := direct(then(37, program("flood", "-bytes", fmt.Sprint(size)))...)
	request.ProcessId = "hers"
	exit, err := ann.Run(ctx, client.RunOptions{Process: request, Stdout: stdout, OnStarted: slam})
	stop()
	if err != nil || exit.Code != 37 || stdout.Offset() != size {
		t.Errorf("Run = %+v, %v after %d of %d bytes; want exit code 37", exit, err, stdout.Offset(), size)
	}
	if exit.Resumed == 0 {
		t.Error("the connection never broke, which shows nothing")
	}
	l.wire.cutAfter(func() int64 { return 1 << 40 })
	for name, c := range map[string]*client.Client{"ann": ann, "bob": bob} {
		_, err := c.Run(ctx, client.RunOptions{Process: direct(shell("true")...)}) // connects again
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Processes().GetProcess(ctx, &execwirev1.GetProcessRequest{ProcessId: "hers"})
		if hers := name == "ann"; hers && err != nil || !hers && client.Reason(err) != execwirev1.ErrorReason_ERROR_REASON_PROCESS_NOT_FOUND {
			t.Errorf("%s gets %v", name, err)
		}
	}
	// Without a credential there is nothing but whether the server is well.
	nobody, err := client.Dial(ctx, l.url, l.trust)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = nobody.Close() }()
	if _, err := nobody.Run(ctx, client.RunOptions{Process: direct(shell("true")...)}); client.Reason(err) != execwirev1.ErrorReason_ERROR_REASON_UNAUTHENTICATED {
		t.Errorf("without a token: %v", err)
	}
}
