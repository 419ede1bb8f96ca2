package wsserver_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/execwire/execwire/gateway/wsserver"
)

func TestMounts_LongestPrefixServes_BehindHostAndOrigin(t *testing.T) {
	t.Parallel()
	named := func(name string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, name+" "+r.URL.Path) })
	}
	s := serveHTTP(t, wsserver.HTTPConfig{
		Mounts:    map[string]http.Handler{"/v1/": named("outer"), "/v1/files/": named("files")},
		HostKnown: func(r *http.Request) bool { return r.Host == "known" },
	})
	for request, want := range map[string]struct {
		status int
		text   string
	}{
		"GET /v1/files//a/../b HTTP/1.1\nHost: known\n\n":                     {200, "files /v1/files//a/../b"},
		"GET /v1/x HTTP/1.1\nHost: known\n\n":                                 {200, "outer /v1/x"},
		"GET /v2 HTTP/1.1\nHost: known\n\n":                                   {404, ""},
		"GET /v1/x HTTP/1.1\nHost: evil.example\n\n":                          {421, `"evil.example" is not a name of this server`},
		"GET /healthz HTTP/1.1\nHost: evil.example\n\n":                       {421, "allowed_hosts"},
		"GET /v1/x HTTP/1.1\nHost: known\nOrigin: https://evil.example\n\n":   {403, ""},
		upgrade("/", map[string]string{"Host": "evil.example"}):               {421, "allowed_hosts"},
		upgrade("/", map[string]string{"Host": "known"}):                      {101, ""},
		"GET /v1/x HTTP/1.1\nHost: " + strings.Repeat("e", 1000) + ".org\n\n": {421, "eee\" is not"},
		"POST /execwire.v1.X/Y HTTP/1.1\nHost: known\nContent-Length: 0\n\n":  {404, ""},
		"GET http://evil.example/v1/x HTTP/1.1\nHost: known\n\n":              {421, "evil.example"},
	} {
		response, body := s.ask(t, request)
		if response.StatusCode != want.status || !strings.Contains(body, want.text) || len(body) > 400 {
			t.Errorf("%.60q: %d %q, want %d %q", request, response.StatusCode, body, want.status, want.text)
		}
	}
}

// A request of a mount may take longer than the server's limit for whole requests.
func TestMounts_LongRequest_OutlivesTheLimitOfOthers(t *testing.T) {
	t.Parallel()
	const limit = 2 * time.Second // a head must never need as long
	s := serveHTTPWithin(t, limit, wsserver.HTTPConfig{Mounts: map[string]http.Handler{"/long": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		_, _ = w.Write(body)
		err = errors.Join(err, http.NewResponseController(w).Flush())
		over := time.NewTimer(2 * limit)
		defer over.Stop()
		select {
		case <-over.C:
		case <-r.Context().Done():
			err = errors.Join(err, context.Cause(r.Context()))
		}
		if err != nil {
			t.Error(err)
		}
		_, _ = io.WriteString(w, " end")
	})}})
	for _, body := range []string{"", "body"} {
		response, got := s.ask(t, "POST /long HTTP/1.1\nHost: x\nContent-Length: "+string(rune('0'+len(body)))+"\nConnection: close\n\n"+body)
		if response.StatusCode != http.StatusOK || got != body+" end" {
			t.Errorf("%d %q", response.StatusCode, got)
		}
	}
}

// A client that stalls, in its request or in taking the response, ends its request.
func TestMounts_StalledClient_TimesOut(t *testing.T) {
	t.Parallel()
	ended := make(chan error, 1)
	s := serveHTTP(t, wsserver.HTTPConfig{StallTimeout: 50 * time.Millisecond, Mounts: map[string]http.Handler{
		"/read": http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, err := io.ReadAll(r.Body)
			ended <- err
		}),
		"/write": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			block := make([]byte, 1<<20)
			err := error(nil)
			for err == nil {
				_, err = w.Write(block)
			}
			ended <- err
		}),
	}})
	for _, request := range []string{"POST /read HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf", "GET /write HTTP/1.1\r\nHost: x\r\n\r\n"} {
		conn, err := net.Dial("tcp", s.address)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		if _, err := io.WriteString(conn, request); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%.20q ended with %v, want %v", request, err, os.ErrDeadlineExceeded)
		}
	}
}

// The time that a handler waits for its source is not that of the client.
func TestMounts_SlowSource_IsNoStall(t *testing.T) {
	t.Parallel()
	const limit = 3 * time.Second                 // a client that reads must never need as long
	content := strings.Repeat("content ", 64<<10) // more than is buffered
	s := serveHTTP(t, wsserver.HTTPConfig{StallTimeout: limit, Mounts: map[string]http.Handler{"/": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		source, slow := io.Pipe()
		defer func() { _ = source.Close() }() // which ends the write
		later := time.AfterFunc(2*limit, func() { _, _ = io.WriteString(slow, content) })
		defer later.Stop()
		if _, err := io.CopyN(w, source, int64(len(content))); err != nil {
			t.Error(err)
		}
	})}})
	response, body := s.ask(t, "GET /x HTTP/1.1\nHost: x\nConnection: close\n\n")
	if response.StatusCode != http.StatusOK || body != content {
		t.Errorf("%s, %d bytes", response.Status, len(body))
	}
}

func TestMounts_Shutdown_EndsRequestsAndWaits(t *testing.T) {
	t.Parallel()
	begun, cause := make(chan struct{}), make(chan error, 1)
	s := serveHTTP(t, wsserver.HTTPConfig{Mounts: map[string]http.Handler{"/": http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(begun)
		<-r.Context().Done()
		cause <- context.Cause(r.Context())
	})}})
	conn, err := net.Dial("tcp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, "GET /x HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	<-begun
	if err := s.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-cause:
		if !errors.Is(err, wsserver.ErrShutdown) {
			t.Errorf("the request ended with %v", err)
		}
	default:
		t.Error("Shutdown did not wait for the request")
	}
}
