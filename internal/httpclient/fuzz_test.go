package httpclient

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
)

// FuzzRequestsAreOne: what is sent is one request with what the caller specified;
// nothing in it becomes another header or another request.
func FuzzRequestsAreOne(f *testing.F) {
	f.Add("GET", "http://127.0.0.1:80/a?b#c", "X-A", "1", []byte(nil))
	f.Add("POST", "https://u:p@h/ü é", "content-type", "a\tb", []byte("body"))
	f.Add("BREW", "http://[::1%25lo]:8080?q=<>\"'", "host", "\xff", []byte("\r\n\r\n"))
	f.Add("GET", "http://h/\r\nx: y", "a\r\nb", "c\r\nd", []byte("GET / HTTP/1.1\r\n\r\n"))
	f.Add("GET", "//h//", "connection", " upgrade ", []byte("x"))
	f.Fuzz(func(t *testing.T, method, url, name, value string, body []byte) {
		r := &Request{Method: method, URL: url, Headers: []Header{{name, value}}, Body: body}
		m, err := r.message()
		if err != nil {
			return
		}
		sent := bufio.NewReader(bytes.NewReader(append(m.appendHead(nil), body...)))
		line, err := sent.ReadString('\n')
		if want := method + " " + m.to.path + " HTTP/1.1\r\n"; err != nil || line != want || strings.Count(line, " ") != 2 {
			t.Fatalf("the first line is %q, want %q", line, want)
		}
		whole := bufio.NewReader(io.MultiReader(strings.NewReader("POST / HTTP/1.1\r\n"), sent))
		request, err := http.ReadRequest(whole)
		if err != nil {
			if strings.EqualFold(name, "host") {
				return // not accepted by any server
			}
			t.Fatalf("the request is none: %v", err)
		}
		got, err := io.ReadAll(request.Body)
		if err != nil || !bytes.Equal(got, body) {
			t.Errorf("the body is %q, want %q; %v", got, body, err)
		}
		if rest, _ := io.ReadAll(whole); len(rest) > 0 {
			t.Errorf("after the request comes %q", rest)
		}
		known := map[string]bool{"Accept": true, "Content-Length": true, "Authorization": true, http.CanonicalHeaderKey(name): true}
		for header := range request.Header {
			if !known[header] {
				t.Errorf("a header %q was sent with %q: %q", header, name, value)
			}
		}
	})
}

// FuzzResponses: the result is a response or an error, and the head is bounded.
func FuzzResponses(f *testing.F) {
	f.Add([]byte("HTTP/1.1 200 OK\r\nA: b\r\n c\r\nContent-Length: 2\r\n\r\nok"))
	f.Add([]byte("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 204 \n\n"))
	f.Add([]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\nt: v\r\n\r\n"))
	f.Add([]byte("HTTP/1.1 1\r\n\r\n"))
	f.Add([]byte("\n HTTP/1.1 200\n"))
	f.Fuzz(func(t *testing.T, came []byte) {
		const limit = 256
		response, headers, err := readResponse(bufio.NewReader(bytes.NewReader(came)), "GET", limit)
		if err != nil {
			return
		}
		kept := 0
		for _, h := range headers {
			if kept += len(h.Name) + len(h.Value); strings.ContainsAny(h.Name+h.Value, "\r\n") {
				t.Errorf("a header has the end of a line: %q", h)
			}
		}
		if kept > limit || response.StatusCode < 100 || response.StatusCode > 999 {
			t.Errorf("the response is %d with %d bytes of headers", response.StatusCode, kept)
		}
		_, _ = io.Copy(io.Discard, response.Body)
	})
}
