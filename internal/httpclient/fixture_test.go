package httpclient

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// hang bounds waiting for something that must happen.
const hang = 2 * time.Minute

// upstream is a server that responds with the bytes that a test specifies.
type upstream struct {
	t        testing.TB
	listener net.Listener
	serving  sync.WaitGroup

	mu    sync.Mutex
	heads []string            // guarded by mu; of the requests, in order
	conns map[net.Conn]string // guarded by mu
	over  bool                // guarded by mu
}

// newUpstream serves each connection with answer, which gets the request and its
// body.
func newUpstream(t testing.TB, answer func(conn net.Conn, path string, body []byte)) *upstream {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u := &upstream{t: t, listener: listener, conns: make(map[net.Conn]string)}
	u.serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			u.serving.Go(func() { u.serve(conn, answer) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		u.hangUp()
		u.serving.Wait()
	})
	return u
}

func (u *upstream) serve(conn net.Conn, answer func(net.Conn, string, []byte)) {
	defer func() { _ = conn.Close() }()
	u.mu.Lock()
	u.conns[conn] = ""
	over := u.over
	u.mu.Unlock()
	if over {
		return
	}
	var head strings.Builder
	request, err := http.ReadRequest(bufio.NewReader(io.TeeReader(conn, &head)))
	if err != nil {
		return
	}
	whole, _, _ := strings.Cut(head.String(), "\r\n\r\n")
	u.mu.Lock()
	u.heads = append(u.heads, whole)
	u.mu.Unlock()
	var body []byte
	if request.ContentLength < 1<<20 {
		body, _ = io.ReadAll(request.Body)
	}
	answer(conn, request.URL.Path, body)
}

func (u *upstream) hangUp() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.over = true
	for conn := range u.conns {
		_ = conn.Close()
	}
}

// url returns a URL of the server.
func (u *upstream) url(path string) string { return "http://" + u.listener.Addr().String() + path }

func (u *upstream) port() uint16 {
	return netip.MustParseAddrPort(u.listener.Addr().String()).Port()
}

func (u *upstream) host() string { return u.listener.Addr().String() }

// seen returns the heads of the requests so far.
func (u *upstream) seen() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]string(nil), u.heads...)
}

// say responds to every request with the same bytes.
func say(text string) func(net.Conn, string, []byte) {
	return func(conn net.Conn, _ string, _ []byte) { _, _ = io.WriteString(conn, text) }
}

// ok is a complete response.
const ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

// newClient returns a client with limits that suffice for tests.
func newClient(change ...func(*Options)) *Client {
	options := Options{HeadBytes: 16 << 10, PerOwner: 100}
	for _, f := range change {
		f(&options)
	}
	return New(options)
}

// bounded returns a context that ends when the test hangs.
func bounded(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeoutCause(context.Background(), hang, context.DeadlineExceeded)
	t.Cleanup(cancel)
	return ctx
}

// get sends a request and reads the whole response.
func get(t testing.TB, c *Client, r *Request) (*Response, string, error) {
	t.Helper()
	if r.Method == "" {
		r.Method = http.MethodGet
	}
	response, err := c.Do(bounded(t), r)
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	return response, string(body), err
}

// mustGet is get for requests that must succeed.
func mustGet(t testing.TB, c *Client, r *Request) (*Response, string) {
	t.Helper()
	response, body, err := get(t, c, r)
	if err != nil {
		t.Fatalf("%s %s: %v", r.Method, r.URL, err)
	}
	return response, body
}

// names returns a resolver. answers is called for each query.
func names(t testing.TB, answers func(name string) []netip.Addr) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for question := make([]byte, 1500); ; {
			n, from, err := conn.ReadFrom(question)
			if err != nil {
				return
			}
			if answer := resolve(question[:n], answers); answer != nil {
				_, _ = conn.WriteTo(answer, from)
			}
		}
	})
	t.Cleanup(func() {
		_ = conn.Close()
		serving.Wait()
	})
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

// resolve answers a DNS query for addresses.
func resolve(question []byte, answers func(name string) []netip.Addr) []byte {
	var m dnsmessage.Message
	if m.Unpack(question) != nil || len(m.Questions) != 1 {
		return nil
	}
	q := m.Questions[0]
	m.Header.Response, m.Header.RecursionAvailable, m.Additionals = true, true, nil
	for _, a := range answers(strings.TrimSuffix(q.Name.String(), ".")) {
		header := dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class}
		switch {
		case a.Is4() && q.Type == dnsmessage.TypeA:
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AResource{A: a.As4()}})
		case a.Is6() && q.Type == dnsmessage.TypeAAAA:
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AAAAResource{AAAA: a.As16()}})
		}
	}
	packed, err := m.Pack()
	if err != nil {
		return nil
	}
	return packed
}
