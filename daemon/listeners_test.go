package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/execwire/execwire/daemon"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/errorinfo"
	"github.com/execwire/execwire/internal/listen"
	"github.com/execwire/execwire/internal/testcert"
	"github.com/execwire/execwire/internal/testrace"
)

// many sets a high limit of failed attempts.
func many(cfg *config.Config) { cfg.FailedAttempts = 10_000 }

func TestListeners_AuthenticateAsConfigured(t *testing.T) {
	l := lock(t, many, func(l *locked) string {
		return l.principal("ci", `"all"`, `certificates = ["cn:ci"]`) + l.principal("other", `"all"`)
	})
	ci, unlistedCert := l.clients.Issue("ci"), l.clients.Issue("unlisted")
	plain, secure, socket := l.dial(onGRPC), l.dial(onTLS), l.dial(onUnix)
	certified, unlisted := l.dial(onTLS, ci), l.dial(onTLS, unlistedCert)
	bearer := func(token string) string { return "Bearer " + token }
	for name, tc := range map[string]struct {
		conn   grpc.ClientConnInterface
		header string
		in     bool
	}{
		"token on loopback":           {plain, bearer(tokenOf("ci")), true},
		"token over TLS":              {secure, bearer(tokenOf("ci")), true},
		"token on a socket":           {socket, "bEARER " + tokenOf("ci"), true},
		"certificate":                 {certified, "", true},
		"certificate and its token":   {certified, bearer(tokenOf("ci")), true},
		"unlisted certificate, token": {unlisted, bearer(tokenOf("ci")), true},
		"in this program":             {l.daemon.Conn(), "", true},

		"nothing on loopback":       {plain, "", false},
		"nothing over TLS":          {secure, "", false},
		"nothing on a socket":       {socket, "", false},
		"unlisted certificate":      {unlisted, "", false},
		"wrong token, certificate":  {certified, bearer("x"), false},
		"token of another":          {certified, bearer(tokenOf("other")), false},
		"wrong token on loopback":   {plain, bearer(tokenOf("ci") + "x"), false},
		"wrong token over TLS":      {secure, bearer(tokenOf("ci")[1:]), false},
		"wrong token on a socket":   {socket, bearer(strings.ToUpper(tokenOf("ci"))), false},
		"other scheme":              {plain, "Basic " + tokenOf("ci"), false},
		"token without scheme":      {plain, tokenOf("ci"), false},
		"token with something else": {plain, bearer(tokenOf("ci") + " x"), false},
	} {
		t.Run(name, func(t *testing.T) {
			err := list(l.showing(tc.header), tc.conn)
			if tc.in && err != nil {
				t.Errorf("rejected: %v", err)
			}
			if !tc.in {
				(&locked{t: t}).expectUnknown(err)
			}
		})
	}
	for _, secret := range []string{tokenOf("ci"), tokenOf("ci")[1:20]} {
		if strings.Contains(l.log.String(), secret) {
			t.Errorf("the log has a token: %s", l.log)
		}
	}
	for _, why := range []string{"no principal has it", "neither a token", "cn:unlisted", "the token belongs to other", "principal=ci"} {
		if !strings.Contains(l.log.String(), why) {
			t.Errorf("the log does not contain %q", why)
		}
	}
}

func TestTLS_BadCertificate_FailsHandshake(t *testing.T) {
	l := lock(t, many, func(l *locked) string { return l.principal("ci", `"all"`, `certificates = ["cn:ci"]`) })
	for name, pair := range map[string]testcert.Pair{
		"other authority": testcert.NewAuthority(t).Issue("ci"),
		"expired":         l.clients.Issue("ci", testcert.Expired),
	} {
		// A valid token does not help: the TLS handshake fails.
		if err := list(l.as("ci"), l.dial(onTLS, pair)); status.Code(err) != codes.Unavailable {
			t.Errorf("%s: %v, want no connection", name, err)
		}
	}
}

// A caller listed by the peer credentials of the kernel has the name in the table.
func TestAuthenticate_UnixUsersAndLoopback(t *testing.T) {
	l := lock(t, unchanged, func(l *locked) string {
		return fmt.Sprintf("[[principal]]\nname='me'\nunix_users=['%d']\nallow=['view']\n", os.Getuid()) +
			"[[principal]]\nname='local'\nloopback=true\nallow=['environment']\n"
	})
	if err := list(l.ctx, l.dial(onUnix)); err != nil {
		t.Errorf("on the socket: %v", err)
	}
	l.expect(list(l.ctx, l.dial(onGRPC)), codes.PermissionDenied, "CALL_NOT_ALLOWED")
	l.expectUnknown(list(l.ctx, l.dial(onTLS)))
	// A wrong token is not ignored in favour of valid peer credentials.
	l.expectUnknown(list(l.showing("Bearer x"), l.dial(onUnix)))
	for _, want := range []string{"principal=me", "principal=local"} {
		if !strings.Contains(l.log.String(), want) {
			t.Errorf("the log does not contain %q", want)
		}
	}
}

func TestHealth_IsPublic(t *testing.T) {
	l := lock(t, unchanged, func(l *locked) string { return l.principal("ci", `"view"`) })
	for listener := range l.urls {
		for _, header := range []string{"", "Bearer x"} {
			resp, err := healthpb.NewHealthClient(l.dial(listener)).Check(l.showing(header), &healthpb.HealthCheckRequest{})
			if err != nil || resp.GetStatus() != healthpb.HealthCheckResponse_SERVING {
				t.Errorf("%s, %q: %v, %v", l.urls[listener], header, resp, err)
			}
		}
	}
}

func TestFailedAttempts_AreBounded(t *testing.T) {
	const most = 3
	interval := 200 * time.Millisecond
	l := lock(t, func(cfg *config.Config) {
		cfg.FailedAttempts, cfg.FailedAttemptInterval = most, config.Duration(time.Hour)
	}, func(l *locked) string {
		return l.principal("ci", `"all"`) + "[[principal]]\nname='local'\nloopback=true\nallow=['all']"
	})
	plain, secure, socket := l.dial(onGRPC), l.dial(onTLS), l.dial(onUnix)
	for range 3 * most {
		l.expectUnknown(list(l.showing("Bearer x"), socket)) // failures on a socket do not count
		l.expectUnknown(list(l.ctx, secure))                 // calls without credentials do not count
		if err := list(l.as("ci"), plain); err != nil {
			t.Fatalf("a valid token: %v", err)
		}
	}
	for i := range most {
		l.expectUnknown(list(l.showing("Bearer x"), []grpc.ClientConnInterface{plain, secure}[i%2]))
	}
	for _, header := range []string{"Bearer x", "Bearer " + tokenOf("ci"), "junk"} {
		err := list(l.showing(header), plain)
		l.expect(err, codes.ResourceExhausted, "TOO_MANY_FAILED_ATTEMPTS")
		if wait := retryDelay(err); wait <= 0 || wait > time.Hour {
			t.Errorf("the retry delay is %v", wait)
		}
	}
	if err := list(l.as("ci"), socket); err != nil {
		t.Errorf("on the socket: %v", err)
	}
	if err := list(l.ctx, plain); err != nil {
		t.Errorf("without a token: %v", err)
	}

	short := lock(t, func(cfg *config.Config) {
		cfg.FailedAttempts, cfg.FailedAttemptInterval = 1, config.Duration(interval)
	}, func(l *locked) string { return l.principal("ci", `"all"`) })
	plain = short.dial(onGRPC)
	for { // until one is rejected: the first may expire before the second
		if err := list(short.showing("Bearer x"), plain); status.Code(err) == codes.ResourceExhausted {
			break
		}
		if short.ctx.Err() != nil {
			t.Fatal("never rejected")
		}
	}
	for list(short.as("ci"), plain) != nil { // and accepted again
		if short.ctx.Err() != nil {
			t.Fatal("never accepted again")
		}
		time.Sleep(interval / 10)
	}
}

func retryDelay(err error) time.Duration {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			return info.GetRetryDelay().AsDuration()
		}
	}
	return 0
}

func TestFailedAttempts_FailedHandshake_Counts(t *testing.T) {
	l := lock(t, func(cfg *config.Config) {
		cfg.FailedAttempts, cfg.FailedAttemptInterval = 1, config.Duration(time.Hour)
	}, func(l *locked) string { return l.principal("ci", `"all"`) })
	secure := l.dial(onTLS)
	if err := list(l.as("ci"), secure); err != nil {
		t.Fatal(err)
	}
	failed := func(conn *grpc.ClientConn, why string) {
		t.Helper()
		if err := list(l.ctx, conn); status.Code(err) != codes.Unavailable {
			t.Errorf("the handshake: %v", err)
		}
		for !strings.Contains(l.log.String(), why) {
			if l.ctx.Err() != nil {
				t.Fatalf("the log does not have the failure: %s", l.log)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	ours := l.ca
	l.ca = l.clients // which did not issue the server's certificate
	failed(l.dial(onTLS), "remote error: tls: bad certificate")
	l.ca = ours
	if err := list(l.as("ci"), secure); err != nil {
		t.Errorf("a client that does not trust the server counts: %v", err)
	}
	failed(l.dial(onTLS, testcert.NewAuthority(t).Issue("ci")), "unknown authority")
	l.expect(list(l.as("ci"), secure), codes.ResourceExhausted, "TOO_MANY_FAILED_ATTEMPTS")
}

// A caller on behalf of a principal sees only that principal's session.
func TestOnBehalfOf(t *testing.T) {
	l := lock(t, many, func(l *locked) string {
		return l.principal("gateway", `"view", "start"`, `on_behalf_of = ["user:*", "ci"]`) + l.principal("ci", `"view"`)
	})
	conn := l.dial(onTLS)
	processes := execwirev1.NewProcessServiceClient(conn)
	start := &execwirev1.StartProcessRequest{ProcessId: "p", Command: &execwirev1.ProcessCommand{
		Command: &execwirev1.ProcessCommand_Direct{Direct: &execwirev1.DirectCommand{Argv: []string{"/bin/sleep", "1000"}, WorkingDirectory: "/"}}}}
	if _, err := processes.StartProcess(l.as("gateway", "user:ann"), start); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		on   []string
		sees bool
	}{"ann": {[]string{"user:ann"}, true}, "bob": {[]string{"user:bob"}, false}, "itself": {nil, false}, "ci": {[]string{"ci"}, false}} {
		_, err := processes.GetProcess(l.as("gateway", tc.on...), &execwirev1.GetProcessRequest{ProcessId: "p"})
		if got := err == nil; got != tc.sees {
			t.Errorf("%s sees the process: %v, %v", name, got, err)
		}
	}
	_, err := processes.StartProcess(l.as("gateway", "ci"), start)
	l.expect(err, codes.PermissionDenied, "CALL_NOT_ALLOWED") // ci has no such permission
	for _, on := range [][]string{{"root"}, {""}, {"user:a/b"}, {"user:a", "user:b"}} {
		l.expect(list(l.as("gateway", on...), conn), codes.PermissionDenied, "ON_BEHALF_OF_REFUSED")
	}
	l.expect(list(l.as("ci", "user:ann"), conn), codes.PermissionDenied, "ON_BEHALF_OF_REFUSED")
	l.expectUnknown(list(l.showing("Bearer x", "user:ann"), conn))
	if err := list(l.showing("", "user:ann"), l.daemon.Conn()); err != nil {
		t.Errorf("from an in-process client: %v", err)
	}
	if !strings.Contains(l.log.String(), "principal=gateway/user:ann via=gateway") {
		t.Errorf("the log does not have both names: %s", l.log)
	}
}

func TestTable_Changed_IsReloaded(t *testing.T) {
	testrace.Slow(t) // files are looked at once a second
	l := lock(t, many, func(l *locked) string { return l.principal("ci", `"view"`) })
	conn := l.dial(onGRPC)
	if err := list(l.as("ci"), conn); err != nil {
		t.Fatal(err)
	}
	until := func(what string, done func() bool) {
		t.Helper()
		for !done() {
			if l.ctx.Err() != nil {
				t.Fatalf("never: %s; %s", what, l.log)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	l.writeTable("[[principal]]\nname='ci'\nallow=['no such']")
	until("a broken table is logged", func() bool {
		if err := list(l.as("ci"), conn); err != nil {
			t.Fatalf("while the table is broken: %v", err)
		}
		return strings.Contains(l.log.String(), "keeping the old one")
	})
	l.writeTable(l.principal("ci", `"start"`))
	until("it has the new permission", func() bool { return errorinfo.Of(list(l.as("ci"), conn)).GetReason() == "CALL_NOT_ALLOWED" })
	l.writeTable(l.principal("other", `"view"`))
	until("it is no longer known", func() bool { return errorinfo.Of(list(l.as("ci"), conn)).GetReason() == "UNAUTHENTICATED" })
	if err := list(l.as("other"), conn); err != nil {
		t.Error(err)
	}
}

// Existing connections survive a change of keys; new connections use the new keys.
func TestTLS_KeysChanged_KeepConnections(t *testing.T) {
	testrace.Slow(t) // files are looked at once a second
	l := lock(t, many, func(l *locked) string { return l.principal("ci", `"all"`) })
	before := l.dial(onTLS)
	started, err := execwirev1.NewProcessServiceClient(before).RunProcess(l.as("ci"))
	if err != nil {
		t.Fatal(err)
	}
	if err := started.Send(&execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Start{Start: &execwirev1.RunStart{
		Process: &execwirev1.StartProcessRequest{ProcessId: "p", Command: &execwirev1.ProcessCommand{
			Command: &execwirev1.ProcessCommand_Direct{Direct: &execwirev1.DirectCommand{Argv: []string{"/bin/sleep", "1000"}, WorkingDirectory: "/"}}}}}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := started.Recv(); err != nil {
		t.Fatal(err)
	}
	l.ca = testcert.NewAuthority(t)
	l.ca.Issue("server").Write(t, l.dir, "server")
	for list(l.as("ci"), l.dial(onTLS)) != nil {
		if l.ctx.Err() != nil {
			t.Fatal("the new keys are never used")
		}
		time.Sleep(100 * time.Millisecond)
	}
	processes := execwirev1.NewProcessServiceClient(before)
	if _, err := processes.TerminateProcess(l.as("ci"), &execwirev1.TerminateProcessRequest{ProcessId: "p"}); err != nil {
		t.Errorf("on the old connection: %v", err)
	}
	if _, err := started.Recv(); err != nil {
		t.Errorf("the stream on the old connection: %v", err)
	}
}

func TestListeners_InvalidConfiguration_Fails(t *testing.T) {
	dir := t.TempDir()
	certificate, key := testcert.NewAuthority(t).Issue("server").Write(t, dir, "server")
	table := testcert.WriteFile(t, dir+"/table", []byte("[[principal]]\nname='a'\nallow=['all']\nunix_users=['0']"))
	for name, tc := range map[string]struct {
		url, certificate, key, table string
		kind                         listen.Kind // 0 if it succeeds
	}{
		"loopback with a key":           {"grpcs://127.0.0.1:0", certificate, key, "", 0},
		"everywhere with a table":       {"grpcs://0.0.0.0:0", certificate, key, table, 0},
		"everywhere without a table":    {"grpcs://0.0.0.0:0", certificate, key, "", listen.KindUnauthenticated},
		"without a certificate":         {"grpcs://127.0.0.1:0", "", key, "", listen.KindNoCertificate},
		"without a key":                 {"grpcs://127.0.0.1:0", certificate, "", table, listen.KindNoCertificate},
		"in plain text, with a table":   {"grpc://0.0.0.0:0", certificate, key, table, listen.KindNotLoopback},
		"in plain text, without either": {"grpc://0.0.0.0:0", "", "", "", listen.KindNotLoopback},
	} {
		t.Run(name, func(t *testing.T) {
			err := serveOnce(t, func(cfg *config.Config) {
				cfg.Listen, cfg.TLSCertificate, cfg.TLSKey, cfg.Principals = []string{tc.url}, tc.certificate, tc.key, tc.table
			})
			var typed *listen.Error
			if tc.kind == 0 && err != nil || tc.kind != 0 && (!errors.As(err, &typed) || typed.Kind != tc.kind) {
				t.Errorf("Serve = %v, want kind %v", err, tc.kind)
			}
		})
	}
	if err := os.Chmod(key, 0o644); err != nil {
		t.Fatal(err)
	}
	err := serveOnce(t, func(cfg *config.Config) {
		cfg.Listen, cfg.TLSCertificate, cfg.TLSKey = []string{"grpcs://127.0.0.1:0"}, certificate, key
	})
	if err == nil || !strings.Contains(err.Error(), "chmod 600 "+key) {
		t.Errorf("a key that all users may read: %v", err)
	}
	var broken *auth.TableError
	cfg := config.Default()
	cfg.Principals = dir + "/none"
	if _, err := daemon.New(cfg, daemon.Options{}); !errors.As(err, &broken) {
		t.Errorf("without its table: New = %v", err)
	}
}

// gRPC reads a whole request before it is authenticated. An unauthenticated client cannot
// send a large one.
func TestUnauthenticatedConnection_LargeRequest_IsClosed(t *testing.T) {
	l := lock(t, many, func(l *locked) string { return l.principal("ci", `"all"`) })
	large := &execwirev1.ListProcessesRequest{PageToken: strings.Repeat("x", 3<<20)}
	send := func(ctx context.Context, conn *grpc.ClientConn) error {
		_, err := execwirev1.NewProcessServiceClient(conn).ListProcesses(ctx, large)
		return err
	}
	for _, listener := range []int{onTLS, onGRPC} {
		if err := send(l.ctx, l.dial(listener)); status.Code(err) != codes.Unavailable {
			t.Errorf("an unauthenticated client gets %v, want its connection closed", err)
		}
		// The first request of a principal may have the full size.
		for range 3 {
			l.expect(send(l.as("ci"), l.dial(listener)), codes.InvalidArgument, "INVALID_FIELD")
		}
		conn := l.dial(listener)
		l.expectUnknown(list(l.ctx, conn))
		l.expect(send(l.as("ci"), conn), codes.InvalidArgument, "INVALID_FIELD")
		if resp, err := healthpb.NewHealthClient(l.dial(listener)).Check(l.ctx, &healthpb.HealthCheckRequest{}); err != nil {
			t.Errorf("health: %v, %v", resp, err)
		}
	}
}

// Without client authorities the server does not request certificates, and a certificate
// authenticates no caller.
func TestTLS_NoClientAuthorities_IgnoresCertificates(t *testing.T) {
	l := lock(t, func(cfg *config.Config) { cfg.TLSClientCA = "" }, func(l *locked) string {
		return l.principal("ci", `"all"`, `certificates = ["cn:ci"]`)
	})
	conn := l.dial(onTLS, l.clients.Issue("ci"))
	l.expectUnknown(list(l.ctx, conn))
	if err := list(l.as("ci"), conn); err != nil {
		t.Errorf("with a token: %v", err)
	}
	if !strings.Contains(l.log.String(), "set tls_ca") {
		t.Errorf("the log does not warn: %s", l.log)
	}
}
