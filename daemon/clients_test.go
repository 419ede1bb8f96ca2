package daemon_test

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/execwire/execwire/daemon"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/testcert"
	"github.com/execwire/execwire/internal/wsconn"
)

const websocketToken = "websocket-token-0123456789-0123456789"

// sessionsOf lists the sessions that a gRPC client sees.
func sessionsOf(t *testing.T, ctx context.Context, conn grpc.ClientConnInterface) string {
	t.Helper()
	list, err := execwirev1.NewSessionServiceClient(conn).ListSessions(ctx, &execwirev1.ListSessionsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range list.GetSessions() {
		names = append(names, s.GetSessionId()+" of "+s.GetPrincipal())
	}
	return strings.Join(names, ", ")
}

// Without a table, all local callers are one principal on every protocol. A token for
// another server is ignored.
func TestLoopback_JSONRPCAndGRPC_AreOnePrincipal(t *testing.T) {
	o := open(t, func(cfg *config.Config) { cfg.Listen = append(cfg.Listen, "grpc://127.0.0.1:0") })
	c := o.dialSession(bearerHeader("whatever"))
	c.start("p", "echo hello; exec sleep 1000")
	c.expectNotification("process/output", `"aGVsbG8K"`)
	if got := sessionsOf(t, o.ctx, o.grpc(1)); got != c.session+" of loopback" {
		t.Errorf("the sessions are %q, want %s of loopback", got, c.session)
	}
	for path, status := range map[string]int{"/readyz": 200, "/healthz": 200, "/": 400, "/other": 404} {
		if got := o.get(path, nil); got != status {
			t.Errorf("GET %s = %d, want %d", path, got, status)
		}
	}
}

func TestWebsocket_Origin_IsRejected(t *testing.T) {
	o := open(t, func(cfg *config.Config) { cfg.Origins = []string{"https://app.example.org"} })
	for _, origin := range []string{"https://evil.example", "null", "", "https://app.example.org.evil.example"} {
		header := http.Header{"Origin": {origin}}
		o.refused(wsconn.DialOptions{Header: header}, http.StatusForbidden, "")
		if got := o.get("/readyz", header); got != http.StatusForbidden {
			t.Errorf("from %q /readyz = %d", origin, got)
		}
	}
	o.dialSession(http.Header{"Origin": {"https://app.example.org"}})
	log := o.log.String()
	if strings.Count(log, "refused a request with an Origin") != 1 || !strings.Contains(log, "origin=https://evil.example") {
		t.Errorf("the log must have the first rejection only: %s", log)
	}
}

func TestWebsocket_TokenAuthentication(t *testing.T) {
	o := open(t, func(cfg *config.Config) {
		cfg.Listen = append(cfg.Listen, "grpc://127.0.0.1:0")
		cfg.WebsocketAuth, cfg.FailedAttempts = "capability-token", 5
		cfg.FailedAttemptInterval = config.Duration(time.Hour)
		cfg.WebsocketToken = testcert.WriteFile(t, filepath.Join(t.TempDir(), "token"), []byte(websocketToken+"\n"))
	})
	o.refused(wsconn.DialOptions{}, 401, "missing websocket bearer token")
	o.refused(wsconn.DialOptions{Header: bearerHeader("x")}, 401, "invalid websocket bearer token")
	o.refused(wsconn.DialOptions{Header: http.Header{"Authorization": {"Basic " + websocketToken}}}, 401, "invalid authorization header")
	o.refused(wsconn.DialOptions{Header: http.Header{"Authorization": {"Bearer " + websocketToken}, "Origin": {"x"}}}, 403, "")
	c := o.dialSession(http.Header{"Authorization": {"bearer  " + websocketToken}})
	if got := o.get("/readyz", nil); got != 200 {
		t.Errorf("without a token /readyz = %d", got)
	}
	// The token authenticates gRPC calls too. A caller without it sees no sessions.
	plain := o.grpc(1)
	showing := metadata.AppendToOutgoingContext(o.ctx, "authorization", "Bearer "+websocketToken)
	if mine, others := sessionsOf(t, showing, plain), sessionsOf(t, o.ctx, plain); mine != c.session+" of ws" || others != "" {
		t.Errorf("with the token the sessions are %q, without %q", mine, others)
	}
	for range 3 {
		o.refused(wsconn.DialOptions{Header: bearerHeader("x")}, 401, "invalid websocket bearer token")
	}
	for _, token := range []string{"x", websocketToken} {
		_, err := o.dial(wsconn.DialOptions{Header: bearerHeader(token)})
		if err == nil || !strings.Contains(err.Error(), "429") {
			t.Errorf("after too many attempts: %v", err)
		}
	}
	log := o.log.String()
	for _, reason := range []string{"it is not the websocket token", "no token, but ws_auth requires"} {
		if !strings.Contains(log, reason) {
			t.Errorf("the log does not contain %q: %s", reason, log)
		}
	}
	if strings.Contains(log, websocketToken) {
		t.Errorf("the log has the token: %s", log)
	}
	for line := range strings.Lines(log) {
		if strings.Contains(line, "attempts from") && !strings.Contains(line, "level=DEBUG") {
			t.Errorf("failed attempts are logged above debug level: %s", line)
		}
	}
}

// With a table and a token, either authenticates. Permissions are looked up for every call.
func TestWebsocket_TableAuthentication(t *testing.T) {
	dir := t.TempDir()
	l := &locked{t: t, dir: dir}
	o := open(t, func(cfg *config.Config) {
		cfg.WebsocketAuth = "capability-token"
		cfg.WebsocketToken = testcert.WriteFile(t, filepath.Join(dir, "ws"), []byte(websocketToken))
		cfg.Principals = l.writeTable(l.principal("ci", `"all"`) + l.principal("viewer", `"session", "view", "environment"`) +
			l.principal("front", `"all"`, `on_behalf_of = ["user:*"]`))
	})
	o.refused(wsconn.DialOptions{}, 401, "missing websocket bearer token")
	o.refused(wsconn.DialOptions{Header: bearerHeader("x")}, 401, "invalid websocket bearer token")
	behalf := bearerHeader(tokenOf("front"))
	for _, names := range [][]string{{"user:ann", "user:bob"}, {"ci"}, {""}} {
		behalf["Execwire-On-Behalf-Of"] = names
		o.refused(wsconn.DialOptions{Header: behalf}, 403, "the caller may not act on behalf of whom it named")
	}
	behalf["Execwire-On-Behalf-Of"] = []string{"user:ann"}

	o.dialSession(bearerHeader(websocketToken))
	o.dialSession(behalf)
	ci, viewer := o.dialSession(bearerHeader(tokenOf("ci"))), o.dialSession(bearerHeader(tokenOf("viewer")))
	for _, want := range []string{"principal=ws", "principal=front/user:ann via=front", "principal=ci", "principal=viewer"} {
		o.logged(want)
	}
	if answer := ci.start("a", "exit 0"); answer["result"] == nil {
		t.Errorf("a principal with the permission: %v", answer)
	}
	if answer := viewer.start("a", "exit 0"); !strings.Contains(errorOf(answer), "does not give it the permission") {
		t.Errorf("a principal without the permission: %v", answer)
	}
	l.writeTable(l.principal("viewer", `"all"`))
	for deadline := time.Now().Add(testTimeout); viewer.start("b", "exit 0")["error"] != nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the permission that was added is not applied")
		}
	}
	if answer := ci.start("b", "exit 0"); answer["error"] == nil {
		t.Errorf("a principal that was removed from the table: %v", answer)
	}
}

// The permissions of the table apply to file calls of JSON-RPC clients.
func TestWebsocket_FilePermissions(t *testing.T) {
	dir := t.TempDir()
	l := &locked{t: t, dir: dir}
	const attached = `"session", "environment"`
	o := open(t, func(cfg *config.Config) {
		cfg.Principals = l.writeTable(l.principal("viewer", attached+`, "view", "start", "control"`) +
			l.principal("reader", attached+`, "read_files"`) + l.principal("writer", attached+`, "write_files"`))
	})
	path := testcert.WriteFile(t, filepath.Join(dir, "f"), []byte("kept"))
	params := map[string]any{"path": path, "dataBase64": "eA==", "sourcePath": path, "destinationPath": path + "2", "recursive": false}
	reading := []string{"fs/readFile", "fs/getMetadata", "fs/canonicalize", "fs/readDirectory"}
	writing := []string{"fs/writeFile", "fs/copy", "fs/createDirectory", "fs/remove"}
	for name, refused := range map[string][]string{"viewer": slices.Concat(reading, writing), "reader": writing, "writer": reading} {
		c := o.dialSession(bearerHeader(tokenOf(name)))
		for _, method := range refused {
			if got := errorOf(c.ask(method, params)); !strings.HasPrefix(got, "-32600 ") || !strings.Contains(got, "does not give it the permission") {
				t.Errorf("%s of %s returns %s", method, name, got)
			}
		}
		if content, err := os.ReadFile(path); err != nil || string(content) != "kept" {
			t.Fatalf("after the denied calls of %s the file contains %q: %v", name, content, err)
		}
	}
	if answer := o.dialSession(bearerHeader(tokenOf("reader"))).ask("fs/readFile", params); answer["result"] == nil {
		t.Errorf("with read_files: %v", answer)
	}
	if answer := o.dialSession(bearerHeader(tokenOf("writer"))).ask("fs/writeFile", params); answer["result"] == nil {
		t.Errorf("with write_files: %v", answer)
	}
}

func TestWebsocket_TLS(t *testing.T) {
	dir := t.TempDir()
	l := &locked{t: t, dir: dir, ca: testcert.NewAuthority(t), clients: testcert.NewAuthority(t)}
	o := open(t, func(cfg *config.Config) {
		cfg.Listen = []string{"wss://0.0.0.0:0"}
		cfg.TLSCertificate, cfg.TLSKey = l.ca.Issue("server").Write(t, dir, "server")
		cfg.TLSClientCA = testcert.WriteFile(t, filepath.Join(dir, "clients.pem"), l.clients.PEM)
		cfg.Principals = l.writeTable(l.principal("ci", `"all"`, `certificates = ["cn:ci"]`))
	})
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(o.urls[0], "wss://"))
	o.urls[0] = "wss://127.0.0.1:" + port
	trusting := func(pairs ...testcert.Pair) *tls.Config {
		config := &tls.Config{RootCAs: l.ca.Pool()}
		for _, pair := range pairs {
			config.Certificates = append(config.Certificates, pair.TLS(t))
		}
		return config
	}
	o.refused(wsconn.DialOptions{TLS: trusting()}, 401, "missing websocket bearer token")
	o.refused(wsconn.DialOptions{TLS: trusting(l.clients.Issue("other"))}, 401, "invalid websocket bearer token")
	for name, options := range map[string]wsconn.DialOptions{
		"token":       {TLS: trusting(), Header: bearerHeader(tokenOf("ci"))},
		"certificate": {TLS: trusting(l.clients.Issue("ci"))},
	} {
		c, err := o.dial(options)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if answer := c.initialize().start("p", "exit 0"); answer["result"] == nil {
			t.Errorf("%s: %v", name, answer)
		}
	}
	if _, err := o.dial(wsconn.DialOptions{TLS: &tls.Config{RootCAs: l.clients.Pool()}}); err == nil {
		t.Error("a server certificate of another authority is accepted")
	}
	o.logged("a TLS handshake failed")
}

// Listeners that other hosts can reach need authentication. With a token but without TLS
// the log has a warning.
func TestWebsocket_NotLoopback_NeedsAuthentication(t *testing.T) {
	for _, url := range []string{"ws://0.0.0.0:0", "ws://[::]:0"} {
		err := serveOnce(t, func(cfg *config.Config) { cfg.Listen = []string{"grpc://127.0.0.1:0", url} })
		if err == nil || !strings.Contains(err.Error(), "--ws-auth") {
			t.Errorf("Serve with %s = %v", url, err)
		}
	}
	o := open(t, func(cfg *config.Config) {
		cfg.Listen = []string{"ws://0.0.0.0:0"}
		cfg.WebsocketAuth = "capability-token"
		cfg.WebsocketToken = testcert.WriteFile(t, filepath.Join(t.TempDir(), "token"), []byte(websocketToken))
	})
	o.logged("use wss://")
	o.refused(wsconn.DialOptions{}, 401, "missing websocket bearer token")
	o.dialSession(bearerHeader(websocketToken))
}

func TestNew_UnreadableSecret_Fails(t *testing.T) {
	cfg := config.Default()
	cfg.WebsocketAuth, cfg.WebsocketToken = "capability-token", "/nonexistent"
	if _, err := daemon.New(cfg, daemon.Options{}); err == nil || !strings.Contains(err.Error(), "/nonexistent") {
		t.Errorf("New = %v", err)
	}
}

// A connection beyond the limit is closed at once. With authentication it replaces an
// unauthenticated connection.
func TestWebsocketListener_ConnectionsAreBounded(t *testing.T) {
	o := open(t, func(cfg *config.Config) { cfg.Connections = 2 })
	first := o.dialSession(nil)
	o.dialSession(nil)
	if _, err := o.dial(wsconn.DialOptions{}); err == nil {
		t.Error("a third was accepted")
	}
	o.logged("its limit is reached")
	_ = first.conn.Close(wsconn.CodeNormal, "")
	for deadline := time.Now().Add(testTimeout); ; time.Sleep(10 * time.Millisecond) {
		if _, err := o.dial(wsconn.DialOptions{}); err == nil {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("the closed connection still counts: %v", err)
		}
	}

	locked := open(t, func(cfg *config.Config) {
		cfg.Connections, cfg.WebsocketAuth = 2, "capability-token"
		cfg.WebsocketToken = testcert.WriteFile(t, filepath.Join(t.TempDir(), "token"), []byte(websocketToken))
	})
	friend := locked.dialSession(bearerHeader(websocketToken))
	address := strings.TrimPrefix(locked.urls[0], "ws://")
	for range 5 {
		unknown, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unknown.Close() }()
	}
	locked.dialSession(bearerHeader(websocketToken))
	if answer := friend.start("p", "exit 0"); answer["result"] == nil {
		t.Errorf("the authenticated client: %v", answer)
	}
}

// The table must list the user at the standard streams too.
func TestStdio_UserNotInTable_Fails(t *testing.T) {
	err := serveOnce(t, func(cfg *config.Config) {
		cfg.Principals = (&locked{t: t, dir: t.TempDir()}).writeTable("[[principal]]\nname = \"x\"\nloopback = true\nallow = [\"all\"]\n")
		cfg.Listen = []string{"stdio"}
	})
	if err == nil || !strings.Contains(err.Error(), "unix_users") {
		t.Errorf("Serve = %v", err)
	}
}
