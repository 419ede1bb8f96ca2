package console

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// server answers every unary call with an empty message, and counts them.
type server struct{ called int }

func (s *server) Invoke(context.Context, string, any, any, ...grpc.CallOption) error {
	s.called++
	return nil
}

func (s *server) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, errors.New("no streams")
}

// newConsole returns a console that serves until the end of the test.
func newConsole(t *testing.T) (*Console, *server, string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	behind := &server{}
	c := New(listener, behind)
	ctx, end := context.WithCancelCause(context.Background())
	served := make(chan error, 1)
	go func() { served <- c.Serve(ctx) }()
	t.Cleanup(func() {
		end(nil)
		if err := <-served; err != nil {
			t.Errorf("Serve = %v", err)
		}
	})
	return c, behind, "http://" + listener.Addr().String()
}

// send sends a request. Header is a list of names and values.
func send(t *testing.T, method, url, body string, header ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		if r.Header.Set(header[i], header[i+1]); header[i] == "Host" {
			r.Host = header[i+1]
		}
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(text)
}

// open opens a link and returns the header with the cookie.
func open(t *testing.T, url, link string) []string {
	t.Helper()
	_, token, _ := strings.Cut(link, "#token=")
	response, text := send(t, http.MethodPost, url+sessionPath, token)
	if response.StatusCode != http.StatusNoContent || len(response.Cookies()) != 1 {
		t.Fatalf("%d %s %v", response.StatusCode, text, response.Cookies())
	}
	cookie := response.Cookies()[0]
	if !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode || cookie.Path != "/" {
		t.Errorf("the cookie is %v", cookie)
	}
	return []string{"Cookie", cookie.Name + "=" + cookie.Value}
}

const rpc = execwirev1.EnvironmentService_GetEnvironment_FullMethodName

// call makes a call of the contract.
func call(t *testing.T, url string, header ...string) int {
	t.Helper()
	response, _ := send(t, http.MethodPost, url+rpc, "{}", append([]string{"Content-Type", "application/json", "Connect-Protocol-Version", "1"}, header...)...)
	return response.StatusCode
}

func TestLink_OpensOnce(t *testing.T) {
	c, behind, url := newConsole(t)
	if got := call(t, url); got != http.StatusUnauthorized || behind.called != 0 {
		t.Errorf("a call without a cookie: %d", got)
	}
	link := c.Link()
	cookie := open(t, url, link)
	if got := call(t, url, cookie...); got != http.StatusOK || behind.called != 1 {
		t.Errorf("a call with the cookie: %d", got)
	}
	_, token, _ := strings.Cut(link, "#token=")
	for _, wrong := range []string{token, "", "x", strings.Repeat("x", 2<<10)} {
		if response, _ := send(t, http.MethodPost, url+sessionPath, wrong); response.StatusCode != http.StatusForbidden {
			t.Errorf("%q: %d", wrong, response.StatusCode)
		}
	}
	// A browser makes a link for another one, and the first goes on.
	response, second := send(t, http.MethodPut, url+sessionPath, "", cookie...)
	if response.StatusCode != http.StatusOK || !strings.HasPrefix(second, url+"/#token=") {
		t.Fatalf("%d %s", response.StatusCode, second)
	}
	for _, header := range [][]string{cookie, open(t, url, second)} {
		if got := call(t, url, header...); got != http.StatusOK {
			t.Errorf("a call with a cookie: %d", got)
		}
	}
	if response, _ := send(t, http.MethodPut, url+sessionPath, ""); response.StatusCode != http.StatusUnauthorized {
		t.Errorf("a link without a cookie: %d", response.StatusCode)
	}
}

// The cookie of one console is nothing to another: browsers send it to all ports of a host.
func TestCookie_IsOfOneConsole(t *testing.T) {
	first, _, url := newConsole(t)
	_, behind, other := newConsole(t)
	if got := call(t, other, open(t, url, first.Link())...); got != http.StatusUnauthorized || behind.called != 0 {
		t.Errorf("%d", got)
	}
}

func TestRequests_OfOtherSites_AreRefused(t *testing.T) {
	c, behind, url := newConsole(t)
	cookie := open(t, url, c.Link())
	for _, header := range [][]string{
		{"Host", "evil.example.org"},
		{"Host", strings.Replace(strings.TrimPrefix(url, "http://"), "127.0.0.1", "127.0.0.1.nip.io", 1)},
		{"Origin", "https://evil.example.org"},
		{"Origin", "null"},
		{"Origin", "http://localhost:1"},
		{"Sec-Fetch-Site", "cross-site"},
		{"Sec-Fetch-Site", "same-site"}, // another port
	} {
		if got := call(t, url, append(header, cookie...)...); got != http.StatusForbidden {
			t.Errorf("%v: %d", header, got)
		}
		if response, _ := send(t, http.MethodGet, url+"/v1/files/etc/hostname", "", append(header, cookie...)...); response.StatusCode != http.StatusForbidden {
			t.Errorf("%v, a file: %d", header, response.StatusCode)
		}
	}
	if behind.called != 0 {
		t.Errorf("the server was called %d times", behind.called)
	}
	if got := call(t, url, append(cookie, "Origin", url, "Sec-Fetch-Site", "same-origin")...); got != http.StatusOK {
		t.Errorf("the page itself: %d", got)
	}
}

func TestPage_HasAStrictPolicy(t *testing.T) {
	_, _, url := newConsole(t)
	for path, mediaType := range map[string]string{"/": "text/html", "/index.html": "text/html", "/console.js": "text/javascript", "/console.css": "text/css"} {
		response, text := send(t, http.MethodGet, url+path, "", "Sec-Fetch-Site", "cross-site") // as a link in a mail
		header := response.Header
		if response.StatusCode != http.StatusOK || !strings.HasPrefix(header.Get("Content-Type"), mediaType) || len(text) < 300 {
			t.Errorf("%s: %d %v", path, response.StatusCode, header)
		}
		policy := header.Get("Content-Security-Policy")
		if !strings.Contains(policy, "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src") || !strings.Contains(policy, "frame-ancestors 'none'") ||
			header.Get("X-Content-Type-Options") != "nosniff" || header.Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("%s: %v", path, header)
		}
		if path == "/" && strings.Contains(text, "<script>") {
			t.Error("the page has a script in it")
		}
	}
}
