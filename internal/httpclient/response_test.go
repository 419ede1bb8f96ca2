package httpclient

import (
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/execwire/execwire/internal/testrace"
)

func TestResponse_IsReturnedAsReceived(t *testing.T) {
	for text, want := range map[string]struct {
		status  int
		headers []Header
		body    string
	}{
		"HTTP/1.1 200 OK\r\nX-B: 1\r\nX-A: 2\r\nx-b:3\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\n\x1f\x8b\x00x": {
			200, []Header{{"x-b", "1"}, {"x-a", "2"}, {"x-b", "3"}, {"content-encoding", "gzip"}, {"content-length", "4"}}, "\x1f\x8b\x00x"},
		"HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\nSet-Cookie: a=b\r\n\r\n2\r\nab\r\n1;x=y\r\nc\r\n0\r\nTrailer: x\r\n\r\n": {
			404, []Header{{"transfer-encoding", "chunked"}, {"set-cookie", "a=b"}}, "abc"},
		"HTTP/1.0 500 \r\n\r\nuntil the end":                     {500, nil, "until the end"},
		"HTTP/1.1 204 No Content\r\nX: y\r\n\r\n":                {204, []Header{{"x", "y"}}, ""},
		"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n": {304, []Header{{"content-length", "9"}}, ""},
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n.": {
			200, []Header{{"content-length", "1"}}, "."},
		"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\nnot a body": {101, []Header{{"upgrade", "x"}}, ""},
		"HTTP/1.1 200 OK\r\nX-Folded: a\r\n \t b\r\nX-Raw: \xff\xfe\r\nEmpty:\r\nContent-Length: 0\r\n\r\n": {
			200, []Header{{"x-folded", "a b"}, {"x-raw", "\xff\xfe"}, {"empty", ""}, {"content-length", "0"}}, ""},
		"HTTP/1.1 300 Choices\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n": {300, []Header{{"location", "/x"}, {"content-length", "0"}}, ""},
		"HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n":                   {302, []Header{{"content-length", "0"}}, ""},
	} {
		response, body := mustGet(t, newClient(), &Request{URL: newUpstream(t, say(text)).url("/")})
		if diff := cmp.Diff(want.headers, response.Headers); diff != "" || response.Status != want.status || body != want.body {
			t.Errorf("%q: %d %q, headers (-want +got):\n%s", text, response.Status, body, diff)
		}
	}
	head := say("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n")
	if response, body := mustGet(t, newClient(), &Request{Method: "HEAD", URL: newUpstream(t, head).url("/")}); response.Status != 200 || body != "" {
		t.Errorf("HEAD: %d %q", response.Status, body)
	}
}

func TestResponse_Invalid_Fails(t *testing.T) {
	for text, kind := range map[string]Kind{
		"":                                    Failed,
		"SSH-2.0-OpenSSH\r\n":                 Failed,
		"HTTP/1.1 200 OK\r\nContent-Len":      Failed,
		"HTTP/1.1 099 Low\r\n\r\n":            Failed,
		"\r\n\r\n":                            Failed,
		"HTTP/1.1 abc OK\r\n\r\n":             Failed,
		"HTTP/1.1 200 OK\r\nno colon\r\n\r\n": Failed,
		"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab":             Failed,
		"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 16<<10) + "\r\n\r\n":               HeadTooLarge,
		"HTTP/1.1 200 OK\r\n" + strings.Repeat("X: y\r\n", 4<<10) + "\r\n":                HeadTooLarge,
		strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 1000) + "HTTP/1.1 200 OK\r\n\r\n": HeadTooLarge,
		"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nonly":                                BodyFailed,
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nonly":                  BodyFailed,
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnot a number\r\n":           BodyFailed,
	} {
		address := newUpstream(t, say(text)).url("/")
		_, _, err := get(t, newClient(), &Request{URL: address})
		if !isKind(err, kind) || !strings.Contains(err.Error(), address) {
			t.Errorf("%.60q: %v, want %v with the URL", text, err, kind)
		}
	}
}

func TestResponse_HeadLimit(t *testing.T) {
	head := "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nX: "
	head += strings.Repeat("x", 16<<10-len(head)-4) + "\r\n\r\n"
	if _, body := mustGet(t, newClient(), &Request{URL: newUpstream(t, say(head+".")).url("/")}); body != "." {
		t.Errorf("the body is %q", body)
	}
	_, _, err := get(t, newClient(), &Request{URL: newUpstream(t, say(strings.Replace(head, "X: ", "X:  ", 1)+".")).url("/")})
	if own, _ := err.(*Error); own == nil || own.Kind != HeadTooLarge || own.Limit != 16<<10 {
		t.Errorf("a byte more: %v", err)
	}
}

// redirector redirects by path, to the given targets with a status.
func redirector(t *testing.T, leads map[string]string) *upstream {
	return newUpstream(t, func(conn net.Conn, path string, _ []byte) {
		if lead := leads[path]; lead != "" {
			status, location, _ := strings.Cut(lead, " ")
			_, _ = fmt.Fprintf(conn, "HTTP/1.1 %s Moved\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n", status, location)
			return
		}
		say(ok)(conn, path, nil)
	})
}

func TestRedirect_IsFollowed(t *testing.T) {
	u := redirector(t, map[string]string{
		"/301": "301 /ok", "/302": "302 ok", "/303": "303 /ok#part", "/307": "307 ../ok", "/308": "308 /ok?q",
		"/loop": "302 /loop", "/ftp": "302 ftp://x/", "/bad": "302 http://a b/",
		"/a": "302 /b", "/b": "302 /c", "/c": "302 /ok",
	})
	for _, test := range []struct{ method, path, then string }{
		{"GET", "/301", "GET /ok"}, {"POST", "/301", "GET /ok"}, {"PUT", "/301", "PUT /ok"}, {"HEAD", "/301", "HEAD /ok"},
		{"GET", "/302", "GET /ok"}, {"POST", "/302", "GET /ok"},
		{"POST", "/303", "GET /ok"}, {"DELETE", "/303", "GET /ok"}, {"HEAD", "/303", "HEAD /ok"},
		{"POST", "/307", "POST /ok"}, {"POST", "/308", "POST /ok?q"}, {"GET", "/a", "GET /ok"},
	} {
		var body []byte
		if test.method == "POST" {
			body = []byte("hi")
		}
		response, _ := mustGet(t, newClient(), &Request{Method: test.method, URL: u.url(test.path), Body: body, Headers: []Header{{"Content-Type", "text/x"}}})
		seen := u.seen()
		last := seen[len(seen)-1]
		keeps := strings.HasPrefix(test.then, test.method)
		if !strings.HasPrefix(last, test.then+" HTTP/1.1\r\n") || strings.Contains(last, "content-type") != keeps ||
			strings.Contains(last, "content-length: 2") != (keeps && body != nil) || !strings.Contains(response.URL, "/ok") {
			t.Errorf("%s %s leads to %s: %q", test.method, test.path, response.URL, last)
		}
	}
	before := len(u.seen())
	for path, text := range map[string]string{"/loop": "more than 10 redirects", "/ftp": "must be http or https, got ftp", "/bad": "invalid URL"} {
		if _, _, err := get(t, newClient(), &Request{URL: u.url(path)}); !isKind(err, Failed) || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if n := len(u.seen()) - before; n != 11+1+1 {
		t.Errorf("%d requests were made", n)
	}
	response, _ := mustGet(t, newClient(), &Request{URL: u.url("/302"), Redirects: Stop})
	if response.Status != 302 || !slices.Contains(response.Headers, Header{"location", "ok"}) || response.URL != u.url("/302") {
		t.Errorf("not followed, the response is %+v", response)
	}
}

func TestRedirect_OtherOrigin_DropsCredentials(t *testing.T) {
	other := newUpstream(t, say(ok))
	u := redirector(t, map[string]string{"/out": "307 " + other.url("/in"), "/same": "307 /in"})
	headers := []Header{{"Authorization", "Bearer x"}, {"Cookie", "a=b"}, {"Proxy-Authorization", "y"}, {"Host", "named"}, {"X-Kept", "z"}}
	mustGet(t, newClient(), &Request{URL: u.url("/out"), Headers: headers})
	if got, want := other.seen()[0], "GET /in HTTP/1.1\r\nx-kept: z\r\naccept: */*\r\nhost: "+other.host(); got != want {
		t.Errorf("another server got %q, want %q", got, want)
	}
	mustGet(t, newClient(), &Request{URL: u.url("/same"), Headers: headers})
	if seen := u.seen(); !strings.Contains(seen[2], "authorization: Bearer x\r\ncookie: a=b\r\nproxy-authorization: y\r\nhost: named") {
		t.Errorf("the same server got %q", seen[2])
	}
}

// Errors contain a bounded amount of text from servers.
func TestError_Text_IsBounded(t *testing.T) {
	long := strings.Repeat("x", 10<<10)
	u := newUpstream(t, func(conn net.Conn, path string, _ []byte) {
		switch {
		case strings.HasPrefix(path, "/none"):
			say("HTTP/1.1 200 OK\r\n"+long+"\r\n\r\n")(conn, path, nil)
		case strings.HasPrefix(path, "/led"):
			say("HTTP/1.1 302 Found\r\nLocation: "+long+"://h/\r\nContent-Length: 0\r\n\r\n")(conn, path, nil)
		default:
			say("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nonly")(conn, path, nil)
		}
	})
	for url, kind := range map[string]Kind{
		u.url("/none" + long): Failed, u.url("/led" + long): Failed, u.url("/cut" + long): BodyFailed, "http://0.0.0.0/" + long: AddressRefused,
		long + "://h/": InvalidRequest, "http://h:" + long: InvalidRequest,
	} {
		_, _, err := get(t, newClient(), &Request{URL: url})
		own, _ := err.(*Error)
		if own == nil || own.Kind != kind {
			t.Errorf("%.20s…: %.200v, want %v", url, err, kind)
			continue
		}
		if len(own.Error()) > 3*maxErrorText || len(own.URL) > maxErrorText+len("…") || len(own.Cause()) > maxErrorText+len("…") {
			t.Errorf("%.20s…: the error has %d bytes", url, len(own.Error()))
		}
	}
}

// Reading a body does not retain the head.
func TestBody_DoesNotRetainHead(t *testing.T) {
	testrace.MeasuresMemory(t)
	const requests, limit = 20, 256 << 10
	c := newClient(func(o *Options) { o.HeadBytes = limit })
	head := "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n" + strings.Repeat("a:\n", limit/3-30) + "\r\n1\r\n.\r\n"
	u := newUpstream(t, func(conn net.Conn, _ string, _ []byte) {
		_, _ = io.WriteString(conn, head)
		_, _ = io.Copy(io.Discard, conn) // until the client has disconnected
	})
	before := heap()
	var bodies []io.ReadCloser
	for range requests {
		response, err := c.Do(bounded(t), &Request{Method: "GET", URL: u.url("/")})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := response.Body.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		bodies = append(bodies, response.Body)
	}
	if kept := heap() - before; kept > requests*limit/4 {
		t.Errorf("%d bodies keep %d bytes", requests, kept)
	}
	for _, body := range bodies {
		_ = body.Close()
	}
}

// heap returns the bytes in use.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var now runtime.MemStats
	runtime.ReadMemStats(&now)
	return int64(now.HeapAlloc)
}
