package wsserver_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/execwire/execwire/gateway/wsserver"
	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/wsconn"
)

// patience limits how long a test waits.
const patience = 2 * time.Minute

// surface is a handler that is being served.
type surface struct {
	*wsserver.Handler
	address string
}

// serveHTTP serves config, with defaults for what it omits.
func serveHTTP(t *testing.T, config wsserver.HTTPConfig) *surface {
	t.Helper()
	return serveHTTPWithin(t, time.Minute, config)
}

// serveHTTPWithin is serveHTTP with a limit of the time of requests.
func serveHTTPWithin(t *testing.T, limit time.Duration, config wsserver.HTTPConfig) *surface {
	t.Helper()
	if config.Authenticate == nil {
		config.Authenticate = func(*http.Request) (auth.Caller, *wsserver.Refusal) {
			return auth.Unrestricted(auth.Loopback), nil
		}
	}
	if config.Serve == nil {
		config.Serve = func(_ context.Context, _ auth.Caller, c *wsconn.Conn) { _ = c.Close(wsconn.CodeNormal, "") }
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &surface{Handler: wsserver.NewHandler(config), address: listener.Addr().String()}
	server := wsserver.NewHTTPServer(s.Handler, limit, slog.New(slog.DiscardHandler))
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeoutCause(context.Background(), patience, errors.New("shutting down took too long"))
		defer cancel()
		if err := errors.Join(s.Shutdown(ctx), server.Shutdown(ctx)); err != nil {
			t.Error(err)
		}
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return s
}

// ask sends one literal request and returns the response with its body.
func (s *surface) ask(t *testing.T, request string) (*http.Response, string) {
	t.Helper()
	conn, err := net.Dial("tcp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, strings.ReplaceAll(request, "\n", "\r\n")); err != nil {
		t.Fatal(err)
	}
	method, _, _ := strings.Cut(request, " ")
	response, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusSwitchingProtocols {
		return response, ""
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(body)
}

// upgrade is a websocket request with some headers replaced; "" omits one.
func upgrade(path string, changed map[string]string) string {
	headers := map[string]string{
		"Host": "x", "Connection": "Upgrade", "Upgrade": "websocket",
		"Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
	}
	for name, value := range changed {
		headers[name] = value
		if value == "" {
			delete(headers, name)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "GET %s HTTP/1.1\n", path)
	for name, value := range headers {
		fmt.Fprintf(&b, "%s: %s\n", name, value)
	}
	return b.String() + "\n"
}

// The responses of the reference, and our own for /healthz.
func TestHTTPSurface(t *testing.T) {
	s := serveHTTP(t, wsserver.HTTPConfig{Origins: []string{"https://ide.example"}})
	plain := func(method, path, headers string) string {
		return method + " " + path + " HTTP/1.1\nHost: x\n" + headers + "\n"
	}
	for _, c := range []struct {
		request string
		status  int
		body    string
	}{
		{plain("GET", "/readyz", ""), 200, ""},
		{plain("HEAD", "/readyz", ""), 200, ""},
		{plain("POST", "/readyz", ""), 405, ""},
		{plain("GET", "/readyz?x=1", ""), 200, ""},
		{plain("GET", "/readyz/", ""), 404, ""},
		{plain("GET", "/healthz", ""), 200, ""},
		{plain("HEAD", "/healthz", ""), 200, ""},
		{plain("DELETE", "/healthz", ""), 405, ""},
		{plain("GET", "/", ""), 400, "Connection header did not include 'upgrade'"},
		{plain("POST", "/", ""), 405, "Request method must be `GET`"},
		{plain("OPTIONS", "/", ""), 405, "Request method must be `GET`"},
		{plain("HEAD", "/", ""), 405, ""},
		{plain("GET", "/other", ""), 404, ""},
		{plain("GET", "//", ""), 404, ""},
		{plain("GET", "/metrics", ""), 404, ""},
		{plain("GET", "/readyz", "Origin: http://evil.example\n"), 403, ""},
		{plain("GET", "/healthz", "Origin: null\n"), 403, ""},
		{plain("GET", "/other", "Origin:\n"), 403, ""},
		{plain("GET", "/readyz", "Origin: https://ide.example\n"), 200, ""},
		{plain("GET", "/readyz", "Origin: https://ide.example:443\n"), 403, ""},
		{plain("GET", "/readyz", "Origin: https://ide.example\nOrigin: https://ide.example\n"), 403, ""},
		{upgrade("/", nil), 101, ""},
		{upgrade("/?a=b", nil), 101, ""},
		{upgrade("/other", nil), 404, ""},
		{upgrade("/healthz", nil), 200, ""},
		{upgrade("/", map[string]string{"Origin": "https://ide.example"}), 101, ""},
		{upgrade("/", map[string]string{"Origin": "http://localhost"}), 403, ""},
		{upgrade("/", map[string]string{"Host": "evil.example"}), 101, ""},
		{upgrade("/", map[string]string{"Authorization": "Bearer x"}), 101, ""},
		{upgrade("/", map[string]string{"Connection": "keep-alive, upgrade"}), 101, ""},
		{upgrade("/", map[string]string{"Connection": "close"}), 400, "Connection header did not include 'upgrade'"},
		{upgrade("/", map[string]string{"Upgrade": "h2c"}), 400, "`Upgrade` header did not include 'websocket'"},
		{upgrade("/", map[string]string{"Sec-WebSocket-Version": "8"}), 400, "`Sec-WebSocket-Version` header did not include '13'"},
		{upgrade("/", map[string]string{"Sec-WebSocket-Key": ""}), 400, "`Sec-WebSocket-Key` header missing"},
		{upgrade("/", map[string]string{"Sec-WebSocket-Key": "x"}), 400, "`Sec-WebSocket-Key` header is not 16 bytes in base64"},
	} {
		response, body := s.ask(t, c.request)
		if response.StatusCode != c.status || body != c.body {
			t.Errorf("%.60q returned %d %q, want %d %q", c.request, response.StatusCode, body, c.status, c.body)
		}
		if c.status == http.StatusMethodNotAllowed && !strings.Contains(c.request, " / ") && response.Header.Get("Allow") != "GET,HEAD" {
			t.Errorf("%.60q allows %q", c.request, response.Header.Get("Allow"))
		}
		if got := response.Header.Get("Content-Type"); c.body != "" && got != "text/plain; charset=utf-8" {
			t.Errorf("%.60q has the content type %q", c.request, got)
		}
	}
}

func TestUpgrade_NegotiatesNoExtension(t *testing.T) {
	s := serveHTTP(t, wsserver.HTTPConfig{})
	response, _ := s.ask(t, upgrade("/", map[string]string{
		"Sec-WebSocket-Protocol": "codex", "Sec-WebSocket-Extensions": "permessage-deflate",
	}))
	if got := response.Header.Get("Sec-WebSocket-Accept"); got != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" {
		t.Errorf("the accept key is %q", got)
	}
	for _, name := range []string{"Sec-WebSocket-Protocol", "Sec-WebSocket-Extensions"} {
		if got := response.Header.Values(name); len(got) > 0 {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// Only valid upgrade requests are authenticated.
func TestAuthenticate_OnlyValidUpgrades(t *testing.T) {
	var asked atomic.Int32
	s := serveHTTP(t, wsserver.HTTPConfig{Authenticate: func(*http.Request) (auth.Caller, *wsserver.Refusal) {
		asked.Add(1)
		return auth.Caller{}, wsserver.RefusalOf(&auth.Error{Kind: auth.KindTooManyAttempts, RetryAfter: 1500 * time.Millisecond}, false)
	}})
	for request, want := range map[string]int{
		"GET /readyz HTTP/1.1\nHost: x\n\n": http.StatusOK,
		"GET / HTTP/1.1\nHost: x\n\n":       http.StatusBadRequest,
	} {
		if response, _ := s.ask(t, request); response.StatusCode != want {
			t.Errorf("%q returned %d, want %d", request, response.StatusCode, want)
		}
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("%d requests that are no upgrades were authenticated", n)
	}
	response, body := s.ask(t, upgrade("/", nil))
	if response.StatusCode != http.StatusTooManyRequests || response.Header.Get("Retry-After") != "2" || body == "" {
		t.Errorf("got %d, Retry-After %q, %q", response.StatusCode, response.Header.Get("Retry-After"), body)
	}
}

func TestRefusalOf_AllKinds(t *testing.T) {
	messages := map[auth.Kind]string{
		auth.KindCredentialMissing: "missing websocket bearer token",
		auth.KindHeaderInvalid:     "invalid authorization header",
		auth.KindTokenExpired:      "expired websocket jwt",
		auth.KindTokenNotYetValid:  "websocket jwt is not valid yet",
		auth.KindIssuerMismatch:    "websocket jwt issuer mismatch",
		auth.KindAudienceMismatch:  "websocket jwt audience mismatch",
	}
	for kind := auth.Kind(1); kind < auth.KindEnd; kind++ {
		for signed, invalid := range map[bool]string{false: "invalid websocket bearer token", true: "invalid websocket jwt"} {
			refusal := wsserver.RefusalOf(fmt.Errorf("handshake: %w", &auth.Error{Kind: kind, Err: errors.New("secret details"), ForCaller: "what to do"}), signed)
			if strings.Contains(refusal.Text, "secret") {
				t.Errorf("%v: the message is %q", kind, refusal.Text)
			}
			if kind == auth.KindTooManyAttempts {
				if refusal.Status != http.StatusTooManyRequests || refusal.RetryAfter < time.Second {
					t.Errorf("%v: %+v", kind, refusal)
				}
				continue
			}
			if kind == auth.KindTooManyConnections {
				if refusal.Status != http.StatusTooManyRequests || refusal.Text != "what to do" || refusal.RetryAfter < time.Second {
					t.Errorf("%v: %+v", kind, refusal)
				}
				continue
			}
			if kind == auth.KindPeerRefused {
				if refusal.Status != http.StatusForbidden || refusal.Text != "what to do" {
					t.Errorf("%v: %+v", kind, refusal)
				}
				continue
			}
			if kind == auth.KindOnBehalfOfRefused {
				if refusal.Status != http.StatusForbidden || refusal.Text == "" {
					t.Errorf("%v: %+v", kind, refusal)
				}
				continue
			}
			want := messages[kind]
			if want == "" {
				want = invalid
			}
			if refusal.Status != http.StatusUnauthorized || refusal.Text != want {
				t.Errorf("%v: %+v, want %q", kind, refusal, want)
			}
		}
	}
	if refusal := wsserver.RefusalOf(errors.New("disk on fire"), false); refusal.Status != http.StatusInternalServerError || strings.Contains(refusal.Text, "disk") {
		t.Errorf("an internal error: %+v", refusal)
	}
}

func TestServe_HasCallerAndContext(t *testing.T) {
	type key struct{}
	found := make(chan error, 1)
	s := serveHTTP(t, wsserver.HTTPConfig{
		Authenticate: func(r *http.Request) (auth.Caller, *wsserver.Refusal) {
			*r = *r.WithContext(context.WithValue(r.Context(), key{}, r.Header.Get("Authorization")))
			return auth.Unrestricted(auth.Websocket), nil
		},
		Serve: func(ctx context.Context, caller auth.Caller, c *wsconn.Conn) {
			message, err := c.Receive()
			if !strings.HasPrefix(c.Peer(), "exec-server websocket 127.0.0.1:") {
				t.Errorf("the peer is %q", c.Peer())
			}
			if caller.Principal != auth.Websocket || ctx.Value(key{}) != "Bearer x" || string(message) != "hello" || err != nil {
				found <- fmt.Errorf("%v, %v, %q, %w", caller, ctx.Value(key{}), message, err)
			}
			found <- c.Send([]byte("welcome"))
		},
	})
	c, err := wsconn.Dial(t.Context(), "ws://"+s.address, wsconn.DialOptions{Header: http.Header{"Authorization": {"Bearer x"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(wsconn.CodeNormal, "")
	if err := c.Send([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if answer, err := c.Receive(); string(answer) != "welcome" || err != nil {
		t.Errorf("received %q, %v", answer, err)
	}
	if err := <-found; err != nil {
		t.Error(err)
	}
	// Serve returned without closing the connection: an internal error.
	var closed *wsconn.ClosedError
	if _, err := c.Receive(); !errors.As(err, &closed) || closed.Code != wsconn.CodeInternalError {
		t.Errorf("Receive returned %v", err)
	}
}
