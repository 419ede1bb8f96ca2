package listen_test

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/execwire/execwire/internal/listen"
)

// mustListenWith opens a listener with options and closes it with the test.
func mustListenWith(t *testing.T, raw string, opts listen.Options) *dispatched {
	t.Helper()
	u, err := listen.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	l, err := listen.Listen(t.Context(), u, opts)
	if err != nil {
		t.Fatal(err)
	}
	d := dispatch(l)
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// Websocket listeners that are reachable from other hosts require authentication,
// with TLS too.
func TestWebsocket_BeyondLoopback_RequiresAuthentication(t *testing.T) {
	l := newLocked(t)
	for raw, opts := range map[string]listen.Options{
		"ws://0.0.0.0:0":  {Authenticated: true},
		"ws://[::]:0":     {},
		"wss://0.0.0.0:0": {TLS: l.lock, Authenticated: true},
	} {
		u, err := listen.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		_, err = listen.Listen(t.Context(), u, opts)
		var typed *listen.Error
		if !errors.As(err, &typed) || typed.Kind != listen.KindUnauthenticated {
			t.Fatalf("Listen(%s) = %v, want an Error of kind %v", raw, err, listen.KindUnauthenticated)
		}
		for _, text := range []string{"ws_auth", "--ws-auth", "principals_file", string(u.Scheme) + "://127.0.0.1:"} {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("the message %q does not contain %q", err, text)
			}
		}
		opts.WebsocketAuthenticated = true
		if got := mustListenWith(t, raw, opts).URL(); got.Scheme != u.Scheme || got.Addr.Addr() != u.Addr.Addr() || got.Addr.Port() == 0 {
			t.Errorf("with authentication %s listens on %v", raw, got)
		}
	}
}

func TestWebsocket_AuthInfo(t *testing.T) {
	for _, authenticated := range []bool{false, true} {
		lis := mustListenWith(t, "ws://127.0.0.1:0", listen.Options{WebsocketAuthenticated: authenticated, UnauthenticatedBytes: 4, Connections: 1})
		roundTrip(t, lis)
		client, err := net.Dial("tcp", lis.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = client.Close() }()
		conn, err := lis.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		info, err := listen.AuthInfoOf(around{conn})
		if err != nil || !info.Loopback || info.Admitted() {
			t.Errorf("authenticated %v: AuthInfo %#v, %v", authenticated, info, err)
		}
		if !authenticated {
			continue
		}
		if _, err := client.Write([]byte("123456")); err != nil {
			t.Fatal(err)
		}
		if n, err := io.ReadFull(conn, make([]byte, 4)); err != nil {
			t.Errorf("read %d, %v", n, err)
		}
		if n, err := conn.Read(make([]byte, 1)); err == nil {
			t.Errorf("read %d bytes beyond the limit", n)
		}
		_ = info.Admit("principal")
		if n, err := io.ReadFull(conn, make([]byte, 2)); err != nil {
			t.Errorf("once admitted: read %d, %v", n, err)
		}
	}
}

// around is a wrapped connection.
type around struct{ inner net.Conn }

func (a around) NetConn() net.Conn                { return a.inner }
func (a around) Read(p []byte) (int, error)       { return a.inner.Read(p) }
func (a around) Write(p []byte) (int, error)      { return a.inner.Write(p) }
func (a around) Close() error                     { return a.inner.Close() }
func (a around) LocalAddr() net.Addr              { return a.inner.LocalAddr() }
func (a around) RemoteAddr() net.Addr             { return a.inner.RemoteAddr() }
func (a around) SetDeadline(t time.Time) error    { return a.inner.SetDeadline(t) }
func (a around) SetReadDeadline(time.Time) error  { return nil }
func (a around) SetWriteDeadline(time.Time) error { return nil }

// farAway is a connection from another host.
type farAway struct{ net.Conn }

func (farAway) LocalAddr() net.Addr  { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 7421} }
func (farAway) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 2), Port: 1} }

func TestWebsocket_OtherHost_IsRemote(t *testing.T) {
	a, b := net.Pipe()
	defer func() { _, _ = a.Close(), b.Close() }()
	if info, err := listen.AuthInfoOf(listen.Counted(farAway{a})); err != nil || info.AuthType() != "none" {
		t.Errorf("AuthInfoOf = %#v, %v", info, err)
	}
	if info, err := listen.AuthInfoOf(a); err == nil {
		t.Errorf("AuthInfoOf of a %T = %#v, want an error", a, info)
	}
}

// A client that delays its handshake does not delay others.
func TestTLS_SlowHandshake_DelaysNoOther(t *testing.T) {
	l := newLocked(t)
	lis := mustListenWith(t, "wss://127.0.0.1:0", listen.Options{TLS: l.lock, WebsocketAuthenticated: true, UnauthenticatedBytes: unauthenticatedBytes})
	silent, err := net.Dial("tcp", lis.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	result := make(chan error, 1)
	go func() {
		client := with(l.clients.Issue("ci"), t)
		_, err := l.dial(t, lis, func(c *tls.Config) { client(c); c.NextProtos = nil })
		result <- err
	}()
	conn, err := lis.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte("hello")); err != nil {
		t.Error(err)
	}
	info, err := listen.AuthInfoOf(conn)
	if err != nil || !info.HasTLS() || info.Admitted() || len(info.State.VerifiedChains) != 1 {
		t.Errorf("AuthInfo %#v, %v", info, err)
	}
	_ = conn.Close()
	if err := <-result; err != nil {
		t.Errorf("the client: %v", err)
	}
}
