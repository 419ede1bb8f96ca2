package conformance

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"github.com/execwire/execwire/integration/harness"
	"hash"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// httpExchange is an HTTP request in a transcript, and its response.
type httpExchange struct {
	Request string             // method and path, and what it is in parentheses
	Headers map[string]*string // nil removes a header of the upgrade
	Status  string
	Body    string

	ResponseHeaders map[string]string `json:"response_headers"`
}

// httpOf returns the exchange of an event; false for other kinds.
func httpOf(t testing.TB, e harness.TranscriptEvent) (httpExchange, bool) {
	t.Helper()
	var x httpExchange
	if e.Kind != "http" {
		return x, false
	}
	if err := json.Unmarshal(e.Value, &x); err != nil {
		t.Fatal(err)
	}
	return x, true
}

// repeat sends the request again and describes how the response differs.
func (x httpExchange) repeat(t testing.TB, address string, place func(string) string) string {
	t.Helper()
	line, isUpgrade := strings.CutSuffix(x.Request, " (websocket upgrade)")
	method, path, _ := strings.Cut(line, " ")
	header := http.Header{"Connection": {"close"}}
	if isUpgrade {
		header = harness.UpgradeHeaders()
	}
	for name, value := range x.Headers {
		header.Del(name)
		if value != nil {
			header[name] = []string{place(*value)}
		}
	}
	conn, _, response, err := harness.RoundTrip(address, method, path, header)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = conn.Close() }()
	want := strings.Fields(x.Status)[1]
	if got := fmt.Sprint(response.StatusCode); got != want {
		return fmt.Sprintf("the status is %s, want %s", got, want)
	}
	if got, want := strings.ReplaceAll(response.Header.Get("Allow"), " ", ""), x.ResponseHeaders["allow"]; got != want && want != "" {
		return fmt.Sprintf("Allow is %q, want %q", got, want)
	}
	if response.StatusCode == http.StatusSwitchingProtocols {
		for _, name := range []string{"Sec-Websocket-Protocol", "Sec-Websocket-Extensions"} {
			if response.Header.Get(name) != "" {
				return "the answer has " + name
			}
		}
		return ""
	}
	body, err := io.ReadAll(response.Body)
	if err != nil || string(body) != x.Body {
		return fmt.Sprintf("the body is %q, %v; want %q", body, err, x.Body)
	}
	return ""
}

// Requests without an upgrade get the responses of the newer reference, and /healthz, which its
// documents promise. (The older one accepted any Origin.)
func TestHTTP_MatchesTheReference(t *testing.T) {
	address := harness.NewServer(t, nil).Address(harness.WebsocketTransport)
	here := strings.NewReplacer("127.0.0.1:${PORT}", address).Replace
	compared := 0
	for _, e := range readTranscript(t, newVersion, "10_http_surface") {
		x, ok := httpOf(t, e)
		if !ok || strings.HasPrefix(x.Request, "GET /metrics") { // the reference has none
			continue
		}
		if strings.HasPrefix(x.Request, "GET /healthz") {
			x.Status = "HTTP/1.1 200 OK"
		}
		if host := x.Headers["Host"]; host != nil && *host == "evil.example" { // the reference does not look at it
			x.Status = "HTTP/1.1 421 Misdirected Request"
			x.Body = `the Host "evil.example" is not a name of this server: use its IP address or localhost, or add the name to its setting allowed_hosts` + "\n"
		}
		if how := x.repeat(t, address, here); how != "" {
			t.Errorf("%s with %s: %s", x.Request, harness.MustJSON(x.Headers), how)
		}
		compared++
	}
	if compared < 35 {
		t.Errorf("%d requests were compared", compared)
	}
}

// jwtClaims returns the claims of the tokens that transcripts name, at a time.
func jwtClaims(now int64) map[string]map[string]any {
	return map[string]map[string]any{
		"exp+60": {"exp": now + 60}, "no exp": {"sub": "x"},
		"expired 10 s ago": {"exp": now - 10}, "expired 29 s ago": {"exp": now - 20},
		"expired 40 s ago": {"exp": now - 40}, "expired 120 s ago": {"exp": now - 120},
		"nbf in 20 s": {"exp": now + 60, "nbf": now + 20}, "nbf in 120 s": {"exp": now + 300, "nbf": now + 120},
		"wrong key": {"exp": now + 60}, "alg none": {"exp": now + 60}, "HS512": {"exp": now + 60},
		"with iss and aud": {"exp": now + 60, "iss": "i", "aud": "a"}, "exp as string": {"exp": fmt.Sprint(now + 60)},
		"right iss aud": {"exp": now + 60, "iss": "iss1", "aud": "aud1"},
		"aud list":      {"exp": now + 60, "iss": "iss1", "aud": []string{"z", "aud1"}},
		"wrong iss":     {"exp": now + 60, "iss": "no", "aud": "aud1"}, "wrong aud": {"exp": now + 60, "iss": "iss1", "aud": "no"},
		"expired 3 s ago, skew 0": {"exp": now - 3, "iss": "iss1", "aud": "aud1"},
	}
}

const websocketSecret = "0123456789abcdef0123456789abcdef"

// jwt creates the token that a transcript names.
func jwt(name string) string {
	if name == "garbage" {
		return "a.b.c"
	}
	key, algorithm, sum := websocketSecret, "HS256", sha256.New
	switch name {
	case "wrong key":
		key = strings.Repeat("x", 32)
	case "alg none":
		algorithm = "none"
	case "HS512":
		algorithm, sum = "HS512", func() hash.Hash { return sha512.New() }
	}
	part := func(v any) string { return base64.RawURLEncoding.EncodeToString([]byte(harness.MustJSON(v))) }
	signed := part(map[string]string{"alg": algorithm, "typ": "JWT"}) + "." + part(jwtClaims(time.Now().Unix())[name])
	mac := hmac.New(sum, []byte(key))
	mac.Write([]byte(signed))
	signature := mac.Sum(nil)
	if algorithm == "none" {
		signature = nil
	}
	return signed + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// placeTokens replaces the names of tokens in headers.
func placeTokens(header string) string {
	before, rest, found := strings.Cut(header, "<jwt: ")
	if !found {
		return header
	}
	name, _, _ := strings.Cut(rest, ">")
	return before + jwt(name)
}

// The flags for credentials, and the results of clients with and without them, are those of
// the reference.
func TestWebsocketCredentials_MatchTheReference(t *testing.T) {
	dir := harness.ShortDir(t)
	for name, content := range map[string]string{"tok": "super-secret-token-0123456789abcdef\n", "key": websocketSecret, "short": "short", "empty": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	place := strings.NewReplacer("${TMP}", dir)
	var server *websocketServer
	started, compared := 0, 0
	for _, e := range readTranscript(t, newVersion, "10_ws_auth") {
		if flags, isStart := strings.CutPrefix(note(e), "start "); isStart {
			var note struct {
				ExitCode *int `json:"exit_code"`
			}
			if err := json.Unmarshal(e.Value, &note); err != nil {
				t.Fatal(err)
			}
			server.stop()
			server = startWebsocketServer(t, strings.Fields(place.Replace(flags))...)
			server.expect(note.ExitCode)
			started++
			continue
		}
		x, ok := httpOf(t, e)
		if !ok {
			continue
		}
		if x.Request == "GET /healthz" {
			x.Status = "HTTP/1.1 200 OK"
		}
		if how := x.repeat(t, server.address, placeTokens); how != "" {
			t.Errorf("%s with %s of a server with %s: %s", x.Request, harness.MustJSON(x.Headers), server.flags, how)
		}
		compared++
	}
	server.stop()
	if started < 14 || compared < 30 {
		t.Errorf("%d servers and %d requests were compared", started, compared)
	}
}

// websocketServer is the command with a websocket listener.
type websocketServer struct {
	testing.TB
	*harness.Command
	flags   []string
	address string // empty if it did not start
}

// startWebsocketServer runs the command until it listens or ends.
func startWebsocketServer(t testing.TB, flags ...string) *websocketServer {
	t.Helper()
	return startServer(t, append([]string{"--listen", "ws://127.0.0.1:0"}, flags...)...)
}

// startServer is startWebsocketServer with other transports; the first counts.
func startServer(t testing.TB, flags ...string) *websocketServer {
	t.Helper()
	c := harness.NewCommand(append([]string{"serve"}, flags...)...)
	c.Dir = harness.ShortDir(t)
	c.Env = append(c.Env, "EXECWIRE_FAILED_ATTEMPTS=1000", "EXECWIRE_SHUTDOWN_GRACE_PERIOD=100ms")
	said, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.Launch(t)
	line := make([]byte, 0, 200)
	for b := make([]byte, 1); ; {
		if _, err := said.Read(b); err != nil || b[0] == '\n' {
			break
		}
		line = append(line, b[0])
	}
	return &websocketServer{TB: t, Command: c, flags: flags, address: harness.AddressOf(string(line))}
}

// expect checks that the server runs, or that it ended with success or failure like the
// reference, with one line as the reason. The code of a failure is our own: 125 for failures of
// the command itself.
func (s *websocketServer) expect(code *int) {
	s.Helper()
	switch {
	case code == nil && s.address == "":
		s.Errorf("a server with %s ended with %d: %s", s.flags, s.Await(s), s.Errors.String())
	case code != nil && s.address != "":
		s.Errorf("a server with %s listens on %s, want it to fail", s.flags, s.address)
	case code != nil:
		if got := s.Await(s); (got == 0) != (*code == 0) {
			s.Errorf("a server with %s exited with %d, want %d, or another failure", s.flags, got, *code)
		}
		if said := s.Errors.String(); *code != 0 && strings.Count(strings.TrimSpace(said), "\n") != 0 {
			s.Errorf("a server with %s prints more than a line:\n%s", s.flags, said)
		}
	}
}

func (s *websocketServer) stop() {
	if s != nil {
		s.Kill()
	}
}
