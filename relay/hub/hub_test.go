package hub_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/listen"
	"github.com/execwire/execwire/internal/testcert"
	"github.com/execwire/execwire/internal/wsconn"
	"github.com/execwire/execwire/relay/hub"
)

const (
	fleetToken = "fleet-token-0123456789-0123456789-0123"
	agentToken = "agent-token-0123456789-0123456789-0123"
	patience   = 2 * time.Minute
)

var errHangs = errors.New("the test hangs")

// start serves a hub on a free loopback port and returns its URL. scheme is http
// or https.
func start(t *testing.T, scheme string, change func(*config.Hub)) string {
	t.Helper()
	_, _, url := startHub(t, scheme, change)
	return url
}

// startHub is start, and also returns the hub and its configuration.
func startHub(t *testing.T, scheme string, change func(*config.Hub)) (*hub.Hub, config.Hub, string) {
	t.Helper()
	return startHubWith(t, scheme, nil, change)
}

// startHubWith is startHub with a logger.
func startHubWith(t *testing.T, scheme string, logger *slog.Logger, change func(*config.Hub)) (*hub.Hub, config.Hub, string) {
	t.Helper()
	cfg := config.DefaultHub()
	cfg.Listen = []string{scheme + "://127.0.0.1:0"}
	if change != nil {
		change(&cfg)
	}
	urls := make(chan string, 1)
	h, err := hub.New(cfg, hub.Options{Logger: logger, OnListen: func(url string) { urls <- url }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancelCause(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- h.Serve(ctx) }()
	t.Cleanup(func() {
		stop(nil)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case url := <-urls:
		return h, cfg, url
	case err := <-ended:
		ended <- nil
		t.Fatal(err)
	}
	return nil, cfg, ""
}

// withTable configures a table in which fleet may act as build-*, and agent may
// connect to it.
func withTable(t *testing.T, cfg *config.Hub, more string) {
	dir := t.TempDir()
	testcert.WriteFile(t, filepath.Join(dir, "fleet"), []byte(fleetToken))
	testcert.WriteFile(t, filepath.Join(dir, "agent"), []byte(agentToken))
	cfg.Principals = testcert.WriteFile(t, filepath.Join(dir, "principals.toml"), fmt.Appendf(nil, `
[[principal]]
name = "fleet"
token_file = "%[1]s/fleet"
act_as_executors = ["build-*"]

[[principal]]
name = "agent"
token_file = "%[1]s/agent"
connect_to_executors = ["build-*"]
%[2]s`, dir, more))
}

// client returns a client that trusts the authority, if there is one.
func client(t *testing.T, trusted *tls.Config) *http.Client {
	transport := &http.Transport{TLSClientConfig: trusted}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: patience}
}

// ask returns the status and JSON of the response.
func ask(t *testing.T, c *http.Client, method, url, token string) (int, map[string]any) {
	t.Helper()
	r, err := http.NewRequest(method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	var body map[string]any
	if err != nil || json.Unmarshal(text, &body) != nil {
		t.Fatalf("%s %s: %s, %q", method, url, response.Status, text)
	}
	return response.StatusCode, body
}

func websocket(t *testing.T, url, token string, trusted *tls.Config) *wsconn.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(context.Background(), patience, errHangs)
	defer cancel()
	header := http.Header{}
	if token != "" {
		header.Set("Authorization", "Bearer "+token)
	}
	conn, err := wsconn.Dial(ctx, url, wsconn.DialOptions{Options: wsconn.Options{Binary: true}, Header: header, TLS: trusted})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(wsconn.CodeNormal, "") })
	return conn
}

// frame is a data frame of stream a, as the reference implementation sends it.
const frame = "\x08\x01\x12\x01a\x2a\x05\x18\x01\x22\x01x"

// meet connects an executor and a harness and exchanges frames.
func meet(t *testing.T, url, executorToken, harnessToken string, trusted *tls.Config) {
	t.Helper()
	c := client(t, trusted)
	status, body := ask(t, c, "POST", url+"/cloud/executor/build-1/register", executorToken)
	made, _ := body["url"].(string)
	if status != http.StatusOK || !strings.HasPrefix(made, "ws"+strings.TrimPrefix(url, "http")+"/executor/build-1?") {
		t.Fatalf("registering gave %d, %v", status, body)
	}
	executor := websocket(t, made, "", trusted)
	harness := websocket(t, "ws"+strings.TrimPrefix(url, "http")+"/executor/build-1?role=harness", harnessToken, trusted)
	for _, way := range [][2]*wsconn.Conn{{harness, executor}, {executor, harness}} {
		if err := way[0].Send([]byte(frame)); err != nil {
			t.Fatal(err)
		}
		if got, err := way[1].Receive(); err != nil || string(got) != frame {
			t.Fatalf("%q came, %v", got, err)
		}
	}
	_, body = ask(t, c, "GET", url+"/v1/executors", harnessToken)
	if list, _ := body["executors"].([]any); len(list) != 1 || list[0].(map[string]any)["connected"] != true {
		t.Errorf("the list is %v", body)
	}
}

func TestHub_Loopback_NeedsNoToken(t *testing.T) { meet(t, start(t, "http", nil), "", "any", nil) }

// A hub with a directory knows its executors after a restart.
func TestHub_Restart_KeepsExecutors(t *testing.T) {
	directory := t.TempDir()
	inFiles := func(cfg *config.Hub) { cfg.Presence, cfg.PresenceDirectory = config.PresenceNATS, directory }
	t.Run("first", func(t *testing.T) { meet(t, start(t, "http", inFiles), "", "any", nil) })
	url := start(t, "http", inFiles)
	c := client(t, nil)
	_, body := ask(t, c, "GET", url+"/v1/executors", "")
	list, _ := body["executors"].([]any)
	if len(list) != 1 || list[0].(map[string]any)["id"] != "build-1" || list[0].(map[string]any)["connected"] != false {
		t.Errorf("the list is %v", body)
	}
	if _, body = ask(t, c, "POST", url+"/cloud/executor/build-1/register", ""); body["epoch"] != 2.0 {
		t.Errorf("registering again gave %v", body)
	}
}

func TestHub_TLSAndTable_AcceptsListedPrincipals(t *testing.T) {
	authority := testcert.NewAuthority(t)
	trusted := &tls.Config{RootCAs: authority.Pool(), MinVersion: tls.VersionTLS13}
	url := start(t, "https", func(cfg *config.Hub) {
		cfg.TLSCertificate, cfg.TLSKey = authority.Issue("127.0.0.1").Write(t, t.TempDir(), "hub")
		withTable(t, cfg, "")
	})
	meet(t, url, fleetToken, agentToken, trusted)
	c := client(t, trusted)
	for name, tc := range map[string]struct {
		path, token string
		status      int
	}{
		"nobody":               {"/cloud/executor/build-1/register", "", 401},
		"who may only use it":  {"/cloud/executor/build-1/register", agentToken, 403},
		"another executor":     {"/cloud/executor/deploy-1/register", fleetToken, 403},
		"who may only be it":   {"/cloud/executor/build-1/connect", fleetToken, 403},
		"who may use it":       {"/cloud/executor/build-1/connect", agentToken, 200},
		"who may be it":        {"/cloud/environment/build-1/register", fleetToken, 200},
		"another's connection": {"/cloud/executor/deploy-1/connect", agentToken, 403},
	} {
		if status, body := ask(t, c, "POST", url+tc.path, tc.token); status != tc.status {
			t.Errorf("%s: %d, %v, want %d", name, status, body, tc.status)
		}
	}
}

// After too many failed attempts not even the right token is accepted.
func TestHub_FailedAttempts_AreLimited(t *testing.T) {
	url := start(t, "http", func(cfg *config.Hub) {
		withTable(t, cfg, "")
		cfg.FailedAttempts, cfg.FailedAttemptInterval = 3, config.Duration(time.Hour)
	})
	c := client(t, nil)
	for range 3 {
		if status, _ := ask(t, c, "GET", url+"/v1/executors", "wrong-token-0123456789-0123456789-0123"); status != http.StatusUnauthorized {
			t.Errorf("a wrong token gives %d", status)
		}
	}
	if status, body := ask(t, c, "GET", url+"/v1/executors", agentToken); status != http.StatusTooManyRequests {
		t.Errorf("after three failures the right token gives %d, %v", status, body)
	}
}

func TestHub_InsecureListeners_AreRejected(t *testing.T) {
	authority := testcert.NewAuthority(t)
	for name, tc := range map[string]struct {
		url    string
		change func(*config.Hub)
		says   string
	}{
		"no scheme":          {"127.0.0.1:7430", nil, "write for example http://"},
		"another scheme":     {"grpc://127.0.0.1:7430", nil, "is not http or https"},
		"a path":             {"http://127.0.0.1:0/x", nil, "nothing but HOST:PORT"},
		"plain text":         {"http://0.0.0.0:0", nil, "allow_http"},
		"plain, nobody":      {"http://0.0.0.0:0", func(cfg *config.Hub) { cfg.AllowHTTP = "on" }, "principals_file"},
		"TLS without keys":   {"https://127.0.0.1:0", nil, "tls_cert"},
		"no such table":      {"http://127.0.0.1:0", func(cfg *config.Hub) { cfg.Principals = "/no/such/table" }, "/no/such/table"},
		"no such secret":     {"http://127.0.0.1:0", func(cfg *config.Hub) { cfg.URLKey = "/no/such/key" }, "url_key_file"},
		"a setting is wrong": {"http://127.0.0.1:0", func(cfg *config.Hub) { cfg.Frame = 1 }, "frame_bytes"},
		"TLS, nobody": {"https://0.0.0.0:0", func(cfg *config.Hub) {
			cfg.TLSCertificate, cfg.TLSKey = authority.Issue("hub").Write(t, t.TempDir(), "hub")
		}, "principals_file"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config.DefaultHub()
			cfg.Listen = []string{tc.url}
			if tc.change != nil {
				tc.change(&cfg)
			}
			h, err := hub.New(cfg, hub.Options{OnListen: func(url string) { t.Errorf("it listens on %s", url) }})
			if err == nil {
				ctx, cancel := context.WithTimeoutCause(context.Background(), patience, errHangs)
				defer cancel()
				err = h.Serve(ctx)
			}
			if err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%v, want %q", err, tc.says)
			}
			if refused, ok := errors.AsType[*listen.Error](err); ok && refused.URL != tc.url {
				t.Errorf("the error is about %q", refused.URL)
			}
		})
	}
}

// Websockets of one principal do not lock out another: the oldest is closed with
// the name of the limit. One more of the same principal is rejected with it.
func TestHub_ConnectionsOfOnePrincipal_AreEvicted(t *testing.T) {
	const otherToken = "other-token-0123456789-0123456789-0123"
	file := testcert.WriteFile(t, filepath.Join(t.TempDir(), "other"), []byte(otherToken))
	url := start(t, "http", func(cfg *config.Hub) {
		cfg.Connections = 5
		withTable(t, cfg, fmt.Sprintf("[[principal]]\nname = \"other\"\ntoken_file = %q\nconnect_to_executors = [\"build-*\"]\n", file))
	})
	fleet := client(t, nil) // keeps its connection
	_, body := ask(t, fleet, "POST", url+"/cloud/executor/build-1/register", fleetToken)
	made, _ := body["url"].(string)
	executor := websocket(t, made, "", nil)
	harnessURL := "ws" + strings.TrimPrefix(url, "http") + "/executor/build-1?role=harness"
	var harnesses []*wsconn.Conn
	for range 3 {
		harnesses = append(harnesses, websocket(t, harnessURL, agentToken, nil))
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), patience, errHangs)
	defer cancel()
	_, err := wsconn.Dial(ctx, harnessURL, wsconn.DialOptions{Options: wsconn.Options{Binary: true}, Header: http.Header{"Authorization": {"Bearer " + agentToken}}})
	refused, ok := errors.AsType[*wsconn.RefusedError](err)
	if !ok || refused.Status != http.StatusTooManyRequests || !strings.Contains(refused.Text, "connections_per_listener") || !strings.Contains(refused.Text, "connection_limit") {
		t.Errorf("one too many of the same principal: %v", err)
	}
	other := websocket(t, harnessURL, otherToken, nil)
	_, err = harnesses[0].Receive()
	if closed, ok := errors.AsType[*wsconn.ClosedError](err); !ok || closed.Code != 1013 || closed.Reason != "connections_per_listener is reached: try again in 1s" {
		t.Errorf("the evicted websocket ended with %v", err)
	}
	if err := other.Send([]byte(frame)); err != nil {
		t.Fatal(err)
	}
	if got, err := executor.Receive(); err != nil || string(got) != frame {
		t.Errorf("%q came, %v", got, err)
	}
}

// A Host that the hub does not know is refused, whatever is requested: a web page whose
// name resolves to the hub must not reach it (DNS rebinding).
func TestHub_UnknownHost_IsMisdirected(t *testing.T) {
	url := start(t, "http", func(cfg *config.Hub) {
		cfg.PublicURL, cfg.Hosts = "https://Public.example.org:7430", []string{"allowed.example.org"}
	})
	address := strings.TrimPrefix(url, "http://")
	known := map[string]bool{
		address: true, "localhost": true, "[::1]:1": true, "public.example.org": true, "ALLOWED.example.org:80": true,
		"evil.example.org": false, "example.org": false, "public.example.org.evil.example": false,
	}
	handshake := "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
	for _, request := range []struct{ line, header string }{
		{"GET /readyz", ""}, {"GET /v1/executors", ""}, {"POST /cloud/executor/build-1/register", "Content-Length: 0\r\n"},
		{"GET /executor/build-1?role=harness", handshake}, {"GET /nothing", ""},
	} {
		for host, isKnown := range known {
			conn, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: %s\r\n%s\r\n", request.line, host, request.header)
			response, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			text, _ := io.ReadAll(response.Body)
			_ = conn.Close()
			refused := response.StatusCode == http.StatusMisdirectedRequest && strings.Contains(string(text), `"host_unknown"`) && strings.Contains(string(text), "allowed_hosts")
			if refused == isKnown {
				t.Errorf("%s of %s: %s, %s", request.line, host, response.Status, text)
			}
		}
	}
}

// A reload changes keys and hosts at once, or nothing.
func TestHub_Reload_ChangesEverythingOrNothing(t *testing.T) {
	dir, ca := t.TempDir(), testcert.NewAuthority(t)
	h, cfg, url := startHub(t, "https", func(cfg *config.Hub) {
		cfg.TLSCertificate, cfg.TLSKey = ca.Issue("hub").Write(t, dir, "hub")
		withTable(t, cfg, "")
	})
	reload := func() { h.Reload(func() (config.Hub, error) { return cfg, nil }) }
	expect := func(what string, ca *testcert.Authority, host string, want int) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/healthz", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Host = host
		response, err := client(t, &tls.Config{RootCAs: ca.Pool()}).Do(request)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		_ = response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("%s: %s", what, response.Status)
		}
	}
	const host = "other.example.org"
	expect("before", ca, host, http.StatusMisdirectedRequest)
	trusted := &tls.Config{RootCAs: ca.Pool()}
	_, body := ask(t, client(t, trusted), "POST", url+"/cloud/executor/build-1/register", fleetToken)
	made, _ := body["url"].(string)
	websocket(t, made, "", trusted)
	harness := "wss" + strings.TrimPrefix(url, "https") + "/executor/build-1?role=harness"
	websocket(t, harness, agentToken, trusted)

	next := testcert.NewAuthority(t)
	cfg.Hosts, cfg.Connections = []string{host}, 1
	cfg.TLSCertificate, cfg.TLSKey = next.Issue("hub").Write(t, dir, "next")
	good, err := os.ReadFile(cfg.Principals)
	if err != nil {
		t.Fatal(err)
	}
	testcert.WriteFile(t, cfg.Principals, []byte("[[principal]]"))
	reload()
	expect("with a broken table", ca, host, http.StatusMisdirectedRequest)
	testcert.WriteFile(t, cfg.Principals, good)
	reload()
	expect("after", next, host, http.StatusOK)
	_, err = wsconn.Dial(t.Context(), harness, wsconn.DialOptions{Options: wsconn.Options{Binary: true},
		Header: http.Header{"Authorization": {"Bearer " + agentToken}}, TLS: &tls.Config{RootCAs: next.Pool()}})
	if refused, ok := errors.AsType[*wsconn.RefusedError](err); !ok || !strings.Contains(refused.Text, "connections_per_listener of 1 connections") {
		t.Errorf("beside a websocket of the same principal: %v", err)
	}
}
