package gateway

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/execwire/execwire/internal/wsconn"
)

// web is an HTTP server with the paths that the recordings use.
func web(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Date"] = nil
		w.Header()["X-A"] = []string{"1", "2", "caf\xe9", "é"}
		w.Header().Set("Content-Type", "text/plain")
		flush := w.(http.Flusher).Flush
		switch path := r.URL.Path; path {
		case "/echo":
			_, _ = io.Copy(w, r.Body)
		case "/redir":
			http.Redirect(w, r, "/ok", http.StatusFound)
		case "/cut":
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "only this")
		case "/late":
			_, _ = io.WriteString(w, "abc")
			flush()
			<-r.Context().Done()
		case "/endless":
			for piece := make([]byte, 32<<10); ; {
				if _, err := w.Write(piece); err != nil {
					return
				}
			}
		default:
			var size int
			if _, err := fmt.Sscanf(path, "/bytes/%d", &size); err == nil {
				_, _ = w.Write(numberedBytes(size))
				return
			}
			_, _ = io.WriteString(w, "hello")
		}
	}))
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s.URL
}

// numberedBytes returns bytes in which lost and repeated ones are visible.
func numberedBytes(size int) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(i) ^ byte(i>>8) ^ byte(i>>16)
	}
	return b
}

func getOf(url string, members ...any) map[string]any {
	return with(map[string]any{"method": "GET", "url": url, "requestId": "r"}, members...)
}

// delta is a notification of a body.
type delta struct {
	RequestID   string
	Seq         int
	DeltaBase64 []byte
	Done        bool
	Error       *string
}

// deltas returns the received body notifications of a request, and the first and last index.
func (cl *client) deltas(id string) (all []delta, first, last int) {
	cl.t.Helper()
	for i, f := range cl.all() {
		if f.Method != "http/request/bodyDelta" || !bytes.Contains(f.raw, []byte(`"requestId":"`+id+`"`)) {
			continue
		}
		var notification struct{ Params delta }
		cl.decode(f.raw, &notification)
		if len(all) == 0 {
			first = i
		}
		all, last = append(all, notification.Params), i
	}
	return all, first, last
}

// body waits for the whole body of a streamed response, or its failure.
func (cl *client) body(id string) (body []byte, failed string) {
	cl.t.Helper()
	_, _ = cl.wait("end of the body of "+id, func(f frame) bool {
		return f.Method == "http/request/bodyDelta" && bytes.Contains(f.raw, []byte(`"requestId":"`+id+`"`)) && bytes.Contains(f.raw, []byte(`"done":true`))
	})
	all, _, _ := cl.deltas(id)
	for i, d := range all {
		if d.Seq != i+1 || d.Done != (i == len(all)-1) || d.Done == (len(d.DeltaBase64) > 0) || len(d.DeltaBase64) > 1<<20 {
			cl.t.Fatalf("notification %d is %+v", i+1, d)
		}
		body = append(body, d.DeltaBase64...)
		if d.Error != nil {
			failed = *d.Error
		}
	}
	return body, failed
}

func TestHTTPRequest_ReturnsWholeResponse(t *testing.T) {
	for _, wire := range []bool{false, true} {
		cl, _ := newTestServer(t, func(s *serverSettings) { s.wire = wire }).attach("")
		url := web(t)
		got := string(cl.must("http/request", getOf(url+"/ok")))
		if want := `{"status":200,"headers":[{"name":"content-type","value":"text/plain"},{"name":"x-a","value":"1"},{"name":"x-a","value":"2"},` +
			`{"name":"content-length","value":"5"}],"bodyBase64":"aGVsbG8="}`; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		for _, size := range []int{0, 1, 100_000, 1 << 20, 1<<20 + 1, 2<<20 + 2} {
			var result struct{ BodyBase64 []byte }
			cl.decode(cl.must("http/request", getOf(fmt.Sprintf("%s/bytes/%d", url, size))), &result)
			if !bytes.Equal(result.BodyBase64, numberedBytes(size)) {
				t.Errorf("got %d bytes back as %d", size, len(result.BodyBase64))
			}
		}
		var echoed struct{ BodyBase64 []byte }
		sent := numberedBytes(1 << 20)
		cl.decode(cl.must("http/request", getOf(url+"/echo", "method", "POST", "bodyBase64", sent, "timeoutMs", uint64(1<<64-1))), &echoed)
		if !bytes.Equal(echoed.BodyBase64, sent) {
			t.Errorf("got %d bytes of %d back", len(echoed.BodyBase64), len(sent))
		}
	}
}

// inTime repeats a request with longer timeouts, in milliseconds, until
// the head of its response arrives in time on this machine.
func (cl *client) inTime(timeout int, ask func(timeout int) frame) frame {
	cl.t.Helper()
	for ; timeout < int(patience.Milliseconds()); timeout *= 2 {
		f := ask(timeout)
		if f.Error == nil || !strings.HasPrefix(f.Error.Message, "http/request failed: error sending request") {
			return f
		}
	}
	cl.t.Fatal("no head of a response was received")
	return frame{}
}

func TestHTTPRequest_ErrorsMatchReference(t *testing.T) {
	cl, _ := newTestServer(t).attach("")
	url := web(t)
	header := func(members ...any) map[string]any {
		return getOf(url, "headers", []any{with(map[string]any{"name": "X"}, members...)})
	}
	for _, test := range []struct {
		params map[string]any
		code   int
		text   string
	}{
		{getOf(url, "method", ""), -32602, "http/request method is invalid: invalid HTTP method"},
		{getOf("relative"), -32602, "http/request url is invalid: relative URL without a base"},
		{getOf("ftp://x/"), -32602, "http/request only supports http and https URLs, got ftp"},
		{header("name", "bad name", "value", "x"), -32602, "http/request header name is invalid: invalid HTTP header name"},
		{header("value", "a\nb"), -32602, "http/request header value is invalid for X: failed to parse header value"},
		{header("name", "Transfer-Encoding", "value", "chunked"), -32602, "http/request header value is invalid for Transfer-Encoding: cannot be set: the body is sent with a length"},
		{header(), -32602, "missing field `value`"},
		{header("valueEnvVar", "HOME"), -32600, "header values are not taken from the environment"},
		{getOf(url, "redirectPolicy", "none"), -32602, "unknown variant `none`, expected `follow` or `stop`"},
		{getOf(url, "requestId", nil), -32602, "invalid type: null, expected a string"},
		{getOf(url, "bodyBase64", "***"), -32602, "Invalid symbol 42, offset 0."},
		{getOf("http://127.0.0.1:1/x?y#z"), -32603, "http/request failed: error sending request for url (http://127.0.0.1:1/x?y)"},
		{getOf(url+"/ok", "timeoutMs", 0), -32603, "http/request failed: route-aware request timed out"},
		{getOf(url + "/cut"), -32603, "failed to read http/request response body: error decoding response body"},
		{getOf("http://169.254.169.254/"), -32600, "http/request failed: 169.254.169.254 is refused"},
		{getOf(url+"/echo", "bodyBase64", make([]byte, 4<<20)), -32005, "message_bytes"},
	} {
		cl.refused("http/request", test.params, test.code, test.text)
	}
	late := cl.inTime(100, func(timeout int) frame { return cl.call("http/request", getOf(url+"/late", "timeoutMs", timeout)) })
	if late.Error == nil || late.Error.Code != -32603 || late.Error.Message != "failed to read http/request response body: error decoding response body" {
		t.Errorf("a late body: got %s", late.raw)
	}
	refusal := cl.refused("http/request", getOf("http://127.0.0.1:1/"), -32603, "")
	if refusal.Data["reason"] != "HTTP_FAILED" || refusal.Data["errno"] != "ECONNREFUSED" || !strings.Contains(fmt.Sprint(refusal.Data["cause"]), "refused") {
		t.Errorf("the data is %v", refusal.Data)
	}
	var stopped struct{ Status int }
	cl.decode(cl.must("http/request", getOf(url+"/redir", "redirectPolicy", "stop")), &stopped)
	if stopped.Status != 302 {
		t.Errorf("the redirect is %+v", stopped)
	}
	cl.must("http/request", getOf(url+"/redir", "redirectPolicy", "follow"))
}

func TestHTTPStream_BodyFollowsResponse(t *testing.T) {
	cl, _ := newTestServer(t).attach("")
	url := web(t)
	const size = 1 << 20
	answer := cl.ask("http/request", getOf(fmt.Sprintf("%s/bytes/%d", url, size), "streamResponse", true, "requestId", "s"))
	if result := cl.reply(answer); !strings.HasSuffix(string(result.Result), `"bodyBase64":""}`) {
		t.Errorf("the response is %s", result.raw)
	}
	if body, failed := cl.body("s"); !bytes.Equal(body, numberedBytes(size)) || failed != "" {
		t.Errorf("got %d bytes of %d, %q", len(body), size, failed)
	}
	_, first, _ := cl.deltas("s")
	if _, at := cl.wait("the response", func(f frame) bool { return string(f.ID) == answer }); at > first {
		t.Errorf("the response follows the body: message %d after %d", at, first)
	}
	for path, want := range map[string]string{"/cut": "only this", "/late": "abc", "/ok": "hello", "/bytes/0": ""} {
		begin := func(timeout int) frame {
			return cl.call("http/request", getOf(url+path, "streamResponse", true, "requestId", path, "timeoutMs", timeout))
		}
		if path == "/late" {
			cl.inTime(100, begin)
		} else {
			begin(1e6)
		}
		body, failed := cl.body(path)
		if string(body) != want || (failed == "error decoding response body") != (path == "/cut" || path == "/late") {
			t.Errorf("%s: %q, %q", path, body, failed)
		}
	}
}

func TestHTTPStream_IDIsInUseUntilEnd(t *testing.T) {
	cl, _ := newTestServer(t).attach("")
	release := make(chan struct{})
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/held" {
			w.(http.Flusher).Flush()
			<-release
		}
	}))
	t.Cleanup(web.Close)
	pending := toJSON(getOf(web.URL+"/held", "streamResponse", true, "requestId", "s"))
	for i := range 2 {
		cl.send(fmt.Sprintf(`{"id":"first %d","method":"http/request","params":%s}`, i, pending))
		cl.send(fmt.Sprintf(`{"id":"second %d","method":"http/request","params":%s}`, i, pending))
		second := cl.reply(fmt.Sprintf(`"second %d"`, i))
		if second.Error == nil || second.Error.Code != -32602 || second.Error.Message != "http/request streamResponse requestId `s` is already active" {
			t.Errorf("the second request: got %s", second.raw)
		}
		cl.must("http/request", getOf(web.URL+"/ok", "requestId", "s"))
		release <- struct{}{}
		cl.body("s")
		cl.mu.Lock()
		cl.frames = nil
		cl.mu.Unlock()
	}
}

func TestHTTPStream_SlowReader_DelaysNothingElse(t *testing.T) {
	srv := newTestServer(t)
	cl, _ := srv.attach("")
	url := web(t)
	cl.must("http/request", getOf(url+"/endless", "streamResponse", true, "requestId", "endless"))
	for i := range 10 {
		cl.must("environment/status", nil)
		cl.start(fmt.Sprint("p", i), "echo hello")
		if text, _ := cl.output(fmt.Sprint("p", i), 1); text != "hello\n" {
			t.Errorf("a process wrote %q beside a body", text)
		}
	}
	all, _, _ := cl.deltas("endless")
	if len(all) == 0 {
		t.Error("no part of the body was received")
	}
	cl.cut()
}

// The end of a connection, normal or not, cancels its requests.
func TestHTTPRequest_Disconnect_IsCancelled(t *testing.T) {
	for what, end := range map[string]func(*client){"cut": (*client).cut, "closed": func(cl *client) { close(cl.pipe.finished) }} {
		arrived, cancelled := make(chan struct{}, 2), make(chan struct{}, 2)
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/stream" {
				w.(http.Flusher).Flush()
			}
			arrived <- struct{}{}
			<-r.Context().Done()
			cancelled <- struct{}{}
		}))
		cl, _ := newTestServer(t).attach("")
		cl.must("http/request", getOf(s.URL+"/stream", "streamResponse", true))
		cl.ask("http/request", getOf(s.URL+"/head"))
		for range 2 {
			awaitOne(t, what+": both requests are made", arrived)
		}
		end(cl)
		_ = cl.ended()
		for range 2 {
			awaitOne(t, what+": the requests end with the connection", cancelled)
		}
		s.Close()
	}
}

func awaitOne(t *testing.T, what string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatalf("timeout: %s", what)
	}
}

func TestHTTPRequest_Limits(t *testing.T) {
	srv := newTestServer(t)
	url := web(t)
	cl, _ := srv.attach("", func(_ *pipe, c *Config) {
		c.HTTPRequests, c.HTTPBuffered, c.Budget = 2, 1<<20, wsconn.NewBudget(2<<20)
	})
	for i := range 2 {
		cl.must("http/request", getOf(url+"/late", "streamResponse", true, "requestId", fmt.Sprint(i), "timeoutMs", 60_000))
	}
	refused := cl.refused("http/request", getOf(url), -32005, "at most 2 may be (http_requests_per_connection)")
	if refused.Data["setting"] != "http_requests_per_connection" {
		t.Errorf("the data is %v", refused.Data)
	}
	cl.cut()

	other, _ := srv.attach("", func(_ *pipe, c *Config) { c.HTTPBuffered = 1 << 20 })
	for range 3 { // buffered bytes are released
		other.must("http/request", getOf(url+"/bytes/1048576"))
		other.refused("http/request", getOf(url+"/bytes/1048577"), -32005, "ask for it with streamResponse")
	}
	other.must("http/request", getOf(url+"/bytes/1048577", "streamResponse", true))
	other.body("r")

	budget := wsconn.NewBudget(1 << 20)
	poor, _ := srv.attach("", func(_ *pipe, c *Config) { c.Budget = budget })
	for range 3 {
		poor.refused("http/request", getOf(url+"/bytes/2000000"), -32005, "incoming_bytes_total")
		poor.must("http/request", getOf(url+"/bytes/1000000"))
	}
	off, _ := srv.attach("", func(_ *pipe, c *Config) { c.NoHTTP = true })
	off.refused("http/request", getOf(url), -32601, "switched off")
	off, _ = newTestServer(t, func(s *serverSettings) { s.http = nil }).attach("")
	off.refused("http/request", getOf(url), -32601, "switched off")
}

// Little of a large body is in memory while the client does not read.
func TestHTTPStream_SlowReader_BlocksOrigin(t *testing.T) {
	var bytesRead atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for piece := make([]byte, 64<<10); ; {
			n, err := w.Write(piece)
			if bytesRead.Add(int64(n)); err != nil {
				return
			}
		}
	}))
	t.Cleanup(s.Close)
	cl, _ := newTestServer(t).attach("")
	cl.must("http/request", getOf(s.URL, "streamResponse", true))
	cl.stopReading()
	const much = 32 << 20 // more than all buffers in between
	settle := func() {
		for seen, still := int64(-1), 0; still < 5; time.Sleep(20 * time.Millisecond) {
			now := bytesRead.Load()
			if still++; now != seen {
				seen, still = now, 0
			}
			if now > much {
				t.Fatalf("%d bytes were read from the origin, and the client does not read", now)
			}
		}
	}
	settle()
	before := bytesRead.Load()
	cl.resumeReading()
	for begun := time.Now(); bytesRead.Load() < before+1<<20; time.Sleep(time.Millisecond) {
		if time.Since(begun) > patience {
			t.Fatal("the body does not continue when the client reads")
		}
	}
	cl.cut()
	_ = cl.ended()
}
