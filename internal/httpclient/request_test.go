package httpclient

import (
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestRequest_IsSentAsGiven(t *testing.T) {
	u := newUpstream(t, say(ok))
	c := newClient()
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	t.Setenv("http_proxy", "http://127.0.0.1:1")
	hundred := strings.Repeat("x", 100)
	for i, test := range []struct {
		request Request
		want    string // HOST stands for that of the server
	}{
		{Request{Method: "GET", URL: "/ok"}, "GET /ok HTTP/1.1\r\naccept: */*\r\nhost: HOST"},
		{Request{Method: "POST", URL: "/echo", Body: []byte("hi"), Headers: []Header{{"X-T", "1"}, {"Content-Type", "text/x"}, {"X-T", " 2\t"}}},
			"POST /echo HTTP/1.1\r\nx-t: 1\r\ncontent-type: text/x\r\nx-t: 2\r\naccept: */*\r\nhost: HOST\r\ncontent-length: 2"},
		{Request{Method: "GET", URL: "?a b#not sent", Headers: []Header{{"Accept", "text/html"}, {"User-Agent", ""}, {"Host", "elsewhere"}}},
			"GET /?a%20b HTTP/1.1\r\naccept: text/html\r\nuser-agent: \r\nhost: elsewhere"},
		{Request{Method: "GET", URL: "/%2e/a%2Fb/ü\"?é='<>&x=%41"}, "GET /%2e/a%2Fb/%C3%BC%22?%C3%A9=%27%3C%3E&x=%41 HTTP/1.1\r\naccept: */*\r\nhost: HOST"},
		{Request{Method: "brew", URL: "/" + hundred}, "brew /" + hundred + " HTTP/1.1\r\naccept: */*\r\nhost: HOST"},
		{Request{Method: "PUT", URL: "/"}, "PUT / HTTP/1.1\r\naccept: */*\r\nhost: HOST\r\ncontent-length: 0"},
		{Request{Method: "DELETE", URL: "/", Body: []byte("x"), Headers: []Header{{"Content-Length", "1"}}},
			"DELETE / HTTP/1.1\r\ncontent-length: 1\r\naccept: */*\r\nhost: HOST"},
	} {
		request := test.request
		request.URL = "http://" + u.host() + request.URL
		mustGet(t, c, &request)
		if got, want := u.seen()[i], strings.ReplaceAll(test.want, "HOST", u.host()); got != want {
			t.Errorf("sent was %q, want %q", got, want)
		}
	}
}

func TestRequest_UserInURL_IsNotRevealed(t *testing.T) {
	u := newUpstream(t, say(ok))
	address := "http://ann:secret@" + u.host() + "/"
	response, _ := mustGet(t, newClient(), &Request{URL: address})
	if head := u.seen()[0]; !strings.Contains(head, "\r\nauthorization: Basic YW5uOnNlY3JldA==") {
		t.Errorf("sent was %q", head)
	}
	mustGet(t, newClient(), &Request{URL: address, Headers: []Header{{"Authorization", "Bearer x"}}})
	if head := u.seen()[1]; !strings.Contains(head, "authorization: Bearer x") || strings.Contains(head, "Basic") {
		t.Errorf("sent was %q", head)
	}
	_, _, err := get(t, newClient(), &Request{URL: "http://ann:secret@127.0.0.1:1/"})
	_, _, malformed := get(t, newClient(), &Request{URL: "http://ann:secret@host:x/"})
	for _, text := range []string{response.URL, err.Error(), malformed.Error()} {
		if strings.Contains(text, "secret") {
			t.Errorf("told was %q", text)
		}
	}
}

func TestRequest_Invalid_NamesField(t *testing.T) {
	negative := -time.Second
	header := func(name, value string) Request {
		return Request{Method: "GET", URL: "http://127.0.0.1:1/", Headers: []Header{{"x", "y"}, {name, value}}}
	}
	for _, test := range []struct {
		request Request
		field   string
		problem string
	}{
		{Request{URL: "http://127.0.0.1:1/"}, "method", "is not an HTTP method"},
		{Request{Method: "bad method", URL: "http://127.0.0.1:1/"}, "method", "is not an HTTP method"},
		{Request{Method: "A\r\nb", URL: "http://127.0.0.1:1/"}, "method", "is not an HTTP method"},
		{Request{Method: "CONNECT", URL: "http://127.0.0.1:1/"}, "method", "cannot be CONNECT"},
		{Request{Method: "GET", URL: "relative"}, "url", "is invalid: relative URL without a base"},
		{Request{Method: "GET", URL: ""}, "url", "is invalid: relative URL without a base"},
		{Request{Method: "GET", URL: "ftp://x/"}, "url", "must be http or https, got ftp"},
		{Request{Method: "GET", URL: "file:///etc/hostname"}, "url", "must be http or https, got file"},
		{Request{Method: "GET", URL: "http:///x"}, "url", "is invalid: empty host"},
		{Request{Method: "GET", URL: "http:opaque"}, "url", "is invalid: empty host"},
		{Request{Method: "GET", URL: "http://h:70000/"}, "url", "is invalid: there is no port 70000"},
		{Request{Method: "GET", URL: "http://h:0/"}, "url", "is invalid: there is no port 0"},
		{Request{Method: "GET", URL: "http://a b/"}, "url", "is invalid"},
		{Request{Method: "GET", URL: "http://h/\r\nx: y"}, "url", "is invalid"},
		{Request{Method: "GET", URL: "http://h/\x00"}, "url", "is invalid"},
		{Request{Method: "GET", URL: "http://a%20b/"}, "url", "is invalid"},
		{header("bad name", "x"), "headers[1].name", "is not the name of a header"},
		{header("", "x"), "headers[1].name", "is not the name of a header"},
		{header("X", "a\nb"), "headers[1].value", "has a control character"},
		{header("X", "a\x00"), "headers[1].value", "has a control character"},
		{header("Transfer-Encoding", "chunked"), "headers[1].value", "cannot be set"},
		{header("Content-Length", "5"), "headers[1].value", "is not the length of the body, which has 0 bytes"},
		{Request{Method: "GET", URL: "http://127.0.0.1:1/", Headers: []Header{{"host", "a"}, {"Host", "b"}}}, "headers[1].value", "is duplicated"},
		{Request{Method: "GET", URL: "http://127.0.0.1:1/", Timeout: &negative}, "timeout", "is negative"},
		{Request{Method: "GET", URL: "http://127.0.0.1:1/", Redirects: 9}, "redirects", "cannot be 9"},
	} {
		_, err := newClient().Do(t.Context(), &test.request)
		own, _ := err.(*Error)
		if own == nil || own.Kind != InvalidRequest || own.Field != test.field || !strings.HasPrefix(own.Err.Error(), test.problem) {
			t.Errorf("%+v: %v, want %s %s", test.request, err, test.field, test.problem)
		}
	}
}

// A server may respond before it has read the whole request.
func TestDo_EarlyResponse(t *testing.T) {
	u := newUpstream(t, func(conn net.Conn, _ string, _ []byte) {
		_, _ = io.WriteString(conn, "HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nno!")
		_, _ = io.Copy(io.Discard, conn) // until the client has disconnected
	})
	response, body := mustGet(t, newClient(), &Request{Method: "POST", URL: u.url("/"), Body: make([]byte, 32<<20)})
	if response.Status != http.StatusRequestEntityTooLarge || body != "no!" {
		t.Errorf("the response is %d %q", response.Status, body)
	}
}

func TestDo_TLS_VerifiesCertificate(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Proto+" "+r.TLS.NegotiatedProtocol)
	}))
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.TLS = &tls.Config{NextProtos: []string{"h2", "http/1.1"}}
	s.StartTLS()
	t.Cleanup(s.Close)
	if _, _, err := get(t, newClient(), &Request{URL: s.URL}); !isKind(err, Failed) {
		t.Errorf("an authority that nobody knows: %v", err)
	}
	known := newClient(func(o *Options) { o.Roots = s.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs })
	if _, body := mustGet(t, known, &Request{URL: s.URL}); body != "HTTP/1.1 http/1.1" {
		t.Errorf("spoken was %q", body)
	}
	another := strings.Replace(s.URL, "127.0.0.1", "localhost", 1)
	if _, _, err := get(t, known, &Request{URL: another}); !isKind(err, Failed) {
		t.Errorf("a certificate for another name: %v", err)
	}
}
