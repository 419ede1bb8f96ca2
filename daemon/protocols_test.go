package daemon_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/testcert"
)

// raw opens a connection without TLS to a listener, which ends with the test.
func (l *locked) raw(listener int) net.Conn {
	l.t.Helper()
	u, err := url.Parse(l.urls[listener])
	if err != nil {
		l.t.Fatal(err)
	}
	network, address := "tcp", u.Host
	if listener == onUnix {
		network, address = "unix", u.Path
	}
	conn, err := net.Dial(network, address)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(testTimeout))
	return conn
}

// open opens a connection to a listener, with TLS where it has it: with these protocols of
// ALPN and client certificates.
func (l *locked) open(listener int, alpn []string, pairs ...testcert.Pair) net.Conn {
	l.t.Helper()
	conn := l.raw(listener)
	if listener != onTLS {
		return conn
	}
	settings := &tls.Config{RootCAs: l.ca.Pool(), ServerName: "localhost", NextProtos: alpn}
	for _, pair := range pairs {
		settings.Certificates = append(settings.Certificates, pair.TLS(l.t))
	}
	secure := tls.Client(conn, settings)
	if err := secure.HandshakeContext(l.ctx); err != nil {
		l.t.Fatal(err)
	}
	return secure
}

// readUntil reads until it has read one of the texts, or the connection ends.
func readUntil(conn net.Conn, texts ...string) string {
	var received []byte
	buffer := make([]byte, 4096)
	for {
		n, err := conn.Read(buffer)
		received = append(received, buffer[:n]...)
		if err != nil || slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(string(received), text) }) {
			return string(received)
		}
	}
}

// ask sends an HTTP request with these header lines, and returns the first line of the
// response and the rest.
func ask(conn net.Conn, request, host, headers, body string) (status, rest string) {
	_, _ = fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: %s\r\n%sContent-Length: %d\r\n\r\n%s", request, host, headers, len(body), body)
	status, rest, _ = strings.Cut(readUntil(conn, "\r\n\r\n"), "\r\n")
	return strings.TrimPrefix(status, "HTTP/1.1 "), rest
}

const upgradeHeaders = "Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"

// initialize opens a session of JSON-RPC on a connection that has become a websocket.
func initialize(conn net.Conn) string {
	const text = `{"id":1,"method":"initialize","params":{"clientName":"c"}}`
	_, _ = conn.Write(append([]byte{0x81, 0x80 | byte(len(text)), 0, 0, 0, 0}, text...))
	return readUntil(conn, `}}`)
}

// Every protocol on every listener authenticates callers the same way.
func TestOnePort_EveryProtocol_Authenticates(t *testing.T) {
	t.Parallel()
	l := lock(t, many, func(l *locked) string { return l.principal("ci", `"all"`, `certificates = ["cn:ci"]`) })
	certificate := l.clients.Issue("ci")
	authorization := func(token string) string {
		if token == "" {
			return ""
		}
		return "Authorization: Bearer " + token + "\r\n"
	}
	protocols := map[string]func(listener int, token string, pairs ...testcert.Pair) error{
		"gRPC": func(listener int, token string, pairs ...testcert.Pair) error {
			ctx := l.ctx
			if token != "" {
				ctx = l.showing("Bearer " + token)
			}
			err := list(ctx, l.dial(listener, pairs...))
			if status.Code(err) == codes.Unauthenticated {
				return os.ErrPermission
			}
			return err
		},
		"websocket": func(listener int, token string, pairs ...testcert.Pair) error {
			conn := l.open(listener, []string{"http/1.1"}, pairs...)
			switch status, _ := ask(conn, "GET /", "localhost", upgradeHeaders+authorization(token), ""); {
			case strings.HasPrefix(status, "401 "):
				return os.ErrPermission
			case !strings.HasPrefix(status, "101 "):
				return errors.New(status)
			}
			if answer := initialize(conn); !strings.Contains(answer, `"sessionId"`) {
				return fmt.Errorf("initialize returned %q", answer)
			}
			return nil
		},
		"call by HTTP": func(listener int, token string, pairs ...testcert.Pair) error {
			conn := l.open(listener, []string{"h2", "http/1.1"}, pairs...)
			status, rest := ask(conn, "POST /execwire.v1.ProcessService/ListProcesses", "localhost", "Content-Type: application/json\r\n"+authorization(token), "{}")
			switch {
			case strings.HasPrefix(status, "401 "):
				return os.ErrPermission
			case !strings.HasPrefix(status, "200 "):
				return fmt.Errorf("%s: %s", status, rest)
			}
			return nil
		},
	}
	listeners := map[string]int{"tcp": onGRPC, "tls": onTLS, "unix": onUnix}
	for protocol, call := range protocols {
		for name, listener := range listeners {
			t.Run(protocol+"/"+name, func(t *testing.T) {
				if err := call(listener, tokenOf("ci")); err != nil {
					t.Errorf("with a token: %v", err)
				}
				for _, token := range []string{"", "wrong"} {
					if err := call(listener, token); !errors.Is(err, os.ErrPermission) {
						t.Errorf("with the token %q: %v, want a refusal", token, err)
					}
				}
				if listener != onTLS {
					return
				}
				if err := call(listener, "", certificate); err != nil {
					t.Errorf("with a certificate: %v", err)
				}
				if err := call(listener, "", l.clients.Issue("unlisted")); !errors.Is(err, os.ErrPermission) {
					t.Errorf("with an unlisted certificate: %v, want a refusal", err)
				}
			})
		}
	}
	for name, listener := range listeners {
		conn := l.open(listener, nil)
		for range 2 { // on one connection
			if status, _ := ask(conn, "GET /healthz", "localhost", "", ""); status != "200 OK" {
				t.Errorf("health over %s: %q", name, status)
			}
		}
	}
}

// http2Begins is the beginning of HTTP/2 of a client, after which the server sends a
// SETTINGS frame, of type 4.
const http2Begins = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"

// ALPN decides the protocol; HTTP/1 has precedence. Without it the first bytes do.
func TestOnePort_ALPN_SelectsTheProtocol(t *testing.T) {
	t.Parallel()
	l := lock(t, unchanged, func(l *locked) string { return l.principal("ci", `"all"`) })
	for _, tc := range []struct {
		offered  []string
		selected string
		http     bool
	}{
		{[]string{"h2", "http/1.1"}, "http/1.1", true},
		{[]string{"http/1.1"}, "http/1.1", true},
		{[]string{"h2"}, "h2", false},
		{nil, "", true},
		{nil, "", false},
	} {
		conn := l.open(onTLS, tc.offered).(*tls.Conn)
		if got := conn.ConnectionState().NegotiatedProtocol; got != tc.selected {
			t.Errorf("%q: ALPN selects %q, want %q", tc.offered, got, tc.selected)
		}
		if tc.http {
			if status, _ := ask(conn, "GET /healthz", "localhost", "", ""); status != "200 OK" {
				t.Errorf("%q: %q", tc.offered, status)
			}
			continue
		}
		frame := make([]byte, 9)
		_, _ = io.WriteString(conn, http2Begins)
		if _, err := io.ReadFull(conn, frame); err != nil || frame[3] != 4 {
			t.Errorf("%q: the first frame is %v, %v", tc.offered, frame, err)
		}
	}
	if client := tls.Client(l.raw(onTLS), &tls.Config{RootCAs: l.ca.Pool(), ServerName: "localhost", NextProtos: []string{"h3"}}); client.Handshake() == nil {
		t.Error("a protocol that is not served was negotiated")
	}
}

// A web page cannot reach a listener by a name of its own.
func TestOnePort_UnknownHost_IsMisdirected(t *testing.T) {
	t.Parallel()
	l := lock(t, func(cfg *config.Config) { cfg.Hosts = []string{"Build.Example.org"} },
		func(l *locked) string { return l.principal("ci", `"all"`) })
	for _, listener := range []int{onGRPC, onTLS, onUnix} {
		for host, known := range map[string]bool{
			"localhost": true, "LOCALHOST:80": true, "127.0.0.1:7420": true, "[::1]:7420": true, "192.0.2.1": true, "build.example.org:443": true,
			"evil.example": false, "evil.example:7420": false, "localhost.evil.example": false, "127.0.0.1.evil.example": false, "build.example.org.evil.example": false,
			"docker": listener == onUnix,
		} {
			for _, path := range []string{"/healthz", "/", "/execwire.v1.ProcessService/ListProcesses", "/v1/files/etc/passwd"} {
				status, _ := ask(l.open(listener, nil), "GET "+path, host, "", "")
				if misdirected := strings.HasPrefix(status, "421 "); misdirected == known {
					t.Errorf("%s of %s with host %s: %s", path, l.urls[listener], host, status)
				}
			}
		}
	}
}

// Whatever a client sends before it is authenticated, its connection ends within limits, and
// disturbs no other.
func TestOnePort_HostileBeginnings_AreBounded(t *testing.T) {
	t.Parallel()
	l := lock(t, func(cfg *config.Config) { many(cfg); cfg.HandshakeTimeout = config.Duration(5 * time.Second) },
		func(l *locked) string { return l.principal("ci", `"all"`) })
	const hello = "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
	endless := strings.Repeat("x", 1<<20)
	beginnings := map[string]string{
		"silence":                   "",
		"one byte":                  "P",
		"two bytes":                 "PR",
		"half a preface":            "PRI * HT",
		"a preface":                 http2Begins[:24],
		"an endless preface":        "PRI * HTTP/2.0\r\n" + endless,
		"an endless frame":          http2Begins + "\xff\xff\xff\x01" + endless,
		"garbage":                   "\x00\xff\xfe\n\n" + endless,
		"TLS":                       hello,
		"half a request":            "GET /healthz HTTP/1.1\r\nHos",
		"an endless header":         "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + endless,
		"an endless body of no one": "POST /execwire.v1.ProcessService/ListProcesses HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 99999999\r\n\r\n" + endless,
		"HTTP":                      "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
	}
	listeners := []int{onGRPC, onTLS, onUnix}
	type neighbour struct {
		call      func() error
		websocket net.Conn
	}
	var neighbours []neighbour
	for _, listener := range listeners {
		conn := l.dial(listener)
		n := neighbour{call: func() error { return list(l.as("ci"), conn) }, websocket: l.open(listener, nil)}
		if err := n.call(); err != nil {
			t.Fatal(err)
		}
		if status, _ := ask(n.websocket, "GET /", "localhost", upgradeHeaders+"Authorization: Bearer "+tokenOf("ci")+"\r\n", ""); !strings.HasPrefix(status, "101 ") {
			t.Fatal(status)
		}
		neighbours = append(neighbours, n)
	}
	var hostile sync.WaitGroup
	for _, listener := range listeners {
		for name, text := range beginnings {
			conn := l.raw(listener)
			if listener == onTLS && len(text)%2 == 1 { // half of them within TLS
				conn = l.open(listener, nil)
			}
			hostile.Go(func() {
				_, _ = io.WriteString(conn, text) // fails once the server has closed
				if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("%s on %s: the connection stays open", name, l.urls[listener])
				}
			})
		}
	}
	for _, n := range neighbours {
		if err := n.call(); err != nil {
			t.Errorf("a call beside them: %v", err)
		}
		if answer := initialize(n.websocket); !strings.Contains(answer, `"sessionId"`) {
			t.Errorf("a websocket beside them: %q", answer)
		}
	}
	hostile.Wait()
	if !strings.Contains(l.log.String(), "a TLS handshake failed") {
		t.Error("the log has no failed handshake")
	}
	for _, n := range neighbours {
		if err := n.call(); err != nil {
			t.Errorf("a call after them: %v", err)
		}
	}
}

// A server that stops waits for no connection whose protocol or first request is not known.
func TestOnePort_Stop_ClosesPendingConnections(t *testing.T) {
	t.Parallel()
	const never = config.Duration(5 * time.Minute) // longer than the test may take
	s := serveWith(t, func(cfg *config.Config) { cfg.HandshakeTimeout = never }, "tcp://127.0.0.1:0", "unix://"+t.TempDir()+"/s")
	var pending []net.Conn
	for _, raw := range s.urls {
		network, address, _ := strings.Cut(raw, "://")
		for _, text := range []string{"", "PR", "PRI * HT", http2Begins, "GET / HT"} {
			conn, err := net.Dial(network, address)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			if _, err := io.WriteString(conn, text); err != nil {
				t.Fatal(err)
			}
			pending = append(pending, conn)
		}
	}
	s.stop(context.Canceled)
	for i, conn := range pending {
		_ = conn.SetReadDeadline(time.Now().Add(testTimeout))
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("connection %d stays open", i)
		}
	}
}
