package wsconn_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/execwire/execwire/internal/testcert"
	"github.com/execwire/execwire/internal/testport"
	"github.com/execwire/execwire/internal/wsconn"
)

func TestDial_Rejected(t *testing.T) {
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		status  int
		text    string
	}{
		"with a reason": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, "missing websocket bearer token")
		}, http.StatusUnauthorized, "missing websocket bearer token"},
		"without a reason": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }, http.StatusForbidden, ""},
		"as plain HTTP":    {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }, http.StatusOK, "hello"},
		"elsewhere": {func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/" {
				t.Error("the redirect was followed")
			}
			w.Header().Set("Location", "/other")
			w.WriteHeader(http.StatusTemporaryRedirect)
		}, http.StatusTemporaryRedirect, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(c.handler)
			defer s.Close()
			_, err := wsconn.Dial(t.Context(), "ws://"+s.Listener.Addr().String(), wsconn.DialOptions{})
			var refused *wsconn.RefusedError
			if !errors.As(err, &refused) || refused.Status != c.status || refused.Text != c.text {
				t.Errorf("dialing: %v (%+v), want %d %q", err, refused, c.status, c.text)
			}
		})
	}
}

func TestDial_Fails(t *testing.T) {
	address := fmt.Sprintf("127.0.0.1:%d", testport.Reserve(t))
	for _, url := range []string{"ws://" + address, "ftp://" + address, "ws://%zz", ""} {
		if c, err := wsconn.Dial(t.Context(), url, wsconn.DialOptions{}); err == nil {
			t.Errorf("%q was dialed", url)
			_ = c.Close(0, "")
		}
	}
}

// Dial does not wait for a silent server longer than its context.
func TestDial_ContextEnds_Returns(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		conn, err := listener.Accept()
		cancel(enough)
		if err == nil {
			_, _ = io.Copy(io.Discard, conn)
			_ = conn.Close()
		}
	}()
	if _, err := wsconn.Dial(ctx, "ws://"+listener.Addr().String(), wsconn.DialOptions{}); !errors.Is(err, enough) {
		t.Errorf("dialing: %v", err)
	}
}

// Dial fails at once if the handshake response is wrong and the server waits.
func TestDial_InvalidHandshake_Fails(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	left := make(chan error, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			left <- err
			return
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(patience))
		in := bufio.NewReader(conn)
		_, readErr := http.ReadRequest(in)
		_, writeErr := io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: no\r\n\r\n")
		_, err = io.Copy(io.Discard, in)
		left <- errors.Join(readErr, writeErr, err)
	}()
	c, err := wsconn.Dial(t.Context(), "ws://"+listener.Addr().String(), wsconn.DialOptions{})
	if err == nil || !strings.Contains(err.Error(), "Sec-WebSocket-Accept") {
		t.Errorf("dialed %v, %v", c, err)
	}
	if err := <-left; err != nil {
		t.Errorf("the server sees %v", err)
	}
}

func TestDial_ContextEndsLater_KeepsConnection(t *testing.T) {
	url := listen(t, wsconn.Options{}, echo)
	ctx, cancel := context.WithCancelCause(t.Context())
	c, err := wsconn.Dial(ctx, url, wsconn.DialOptions{Header: http.Header{"X-Test": {"1"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(wsconn.CodeNormal, "")
	cancel(errors.New("the dial is over"))
	for range 3 {
		if err := c.Send([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		if got, err := c.Receive(); string(got) != "hello" || err != nil {
			t.Fatalf("received %q, %v", got, err)
		}
	}
	if !strings.HasPrefix(c.Peer(), "websocket 127.0.0.1:") {
		t.Errorf("the peer is %q", c.Peer())
	}
}

// listenTLS is listen with TLS; it also returns the client's configuration.
func listenTLS(t *testing.T, o wsconn.Options, serve func(*wsconn.Conn)) (url string, client *tls.Config) {
	t.Helper()
	authority := testcert.NewAuthority(t)
	served := make(chan struct{})
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(served)
		c, err := wsconn.Accept(w, r, o)
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close(wsconn.CodeNormal, "")
		if _, ok := wsconn.Innermost(c).(*net.TCPConn); !ok {
			t.Errorf("below TLS is a %T", wsconn.Innermost(c))
		}
		serve(c)
	}))
	s.Listener = wsconn.Tune(s.Listener, 0, 0)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{authority.Issue("server").TLS(t)}}
	s.StartTLS()
	t.Cleanup(func() {
		s.Close()
		<-served
	})
	return "wss" + strings.TrimPrefix(s.URL, "https"), &tls.Config{RootCAs: authority.Pool()}
}

func TestTLS_Messages(t *testing.T) {
	ends := make(chan error, 1)
	url, config := listenTLS(t, wsconn.Options{}, func(c *wsconn.Conn) {
		for {
			message, err := c.Receive()
			if err != nil {
				ends <- err
				return
			}
			if err := c.Send(message); err != nil {
				t.Error(err)
			}
		}
	})
	c := dial(t, url, wsconn.DialOptions{TLS: config})
	for _, size := range []int{0, 1000, 1 << 20, 5 << 20} {
		message := strings.Repeat("x", size)
		sent := make(chan error, 1)
		go func() { sent <- c.Send([]byte(message)) }()
		if got, err := c.Receive(); string(got) != message || err != nil {
			t.Fatalf("received %d bytes, %v, want %d", len(got), err, size)
		}
		if err := <-sent; err != nil {
			t.Fatal(err)
		}
	}
	end := receiving(c)
	for range 10 {
		if err := c.Prove(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if err := c.Close(wsconn.CodeNormal, ""); err != nil {
		t.Error(err)
	}
	if err := <-ends; err != io.EOF {
		t.Errorf("the server sees %v", err)
	}
	if err := <-end; !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

// The client is sending when the server closes.
func TestTLS_TooLarge(t *testing.T) {
	url, config := listenTLS(t, wsconn.Options{FrameBytes: 1000}, func(c *wsconn.Conn) {
		_, err := c.Receive()
		expectTooLarge(t, err, "frame", 1000)
		if err := errors.Join(c.Send([]byte("explained")), c.Close(wsconn.CodeTooLarge, "too large")); err != nil {
			t.Error(err)
		}
	})
	c := dial(t, url, wsconn.DialOptions{TLS: config})
	sent := make(chan error, 1)
	go func() { sent <- c.Send(make([]byte, 4<<20)) }()
	if got, err := c.Receive(); string(got) != "explained" || err != nil {
		t.Errorf("received %q, %v", got, err)
	}
	var closed *wsconn.ClosedError
	if _, err := c.Receive(); !errors.As(err, &closed) || closed.Code != wsconn.CodeTooLarge {
		t.Errorf("the end is %v", err)
	}
	<-sent // with or without an error: frames that were begun may have been sent
	_ = c.Close(0, "")
}

func TestTLS_ClosePeerNotAnswering_TimesOut(t *testing.T) {
	closed := make(chan error, 1)
	url, config := listenTLS(t, wsconn.Options{CloseTimeout: 500 * time.Millisecond}, func(c *wsconn.Conn) {
		closed <- errors.Join(c.Send([]byte("last words")), c.Close(wsconn.CodeGoingAway, ""))
	})
	c := dial(t, url, wsconn.DialOptions{TLS: config})
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if got, err := c.Receive(); string(got) != "last words" || err != nil {
		t.Errorf("received %q, %v", got, err)
	}
}

// held buffers writes until it is released, and then writes them at once.
type held struct {
	net.Conn
	holding bool
	kept    []byte
}

func (h *held) Write(p []byte) (int, error) {
	if h.holding {
		h.kept = append(h.kept, p...)
		return len(p), nil
	}
	return h.Conn.Write(p)
}

func (h *held) letGo() error {
	h.holding = false
	err := h.SetWriteDeadline(time.Now().Add(patience)) // CloseWrite of TLS sets one that has expired
	_, writeErr := h.Write(h.kept)
	return errors.Join(err, writeErr)
}

// A peer that ends its side of TLS right after its close frame still reads.
func TestTLS_HalfClosedPeer_ReceivesResponses(t *testing.T) {
	url, config := listenTLS(t, wsconn.Options{}, func(c *wsconn.Conn) {
		if message, err := c.Receive(); string(message) != "question" || err != nil {
			t.Errorf("received %q, %v", message, err)
		}
		if _, err := c.Receive(); err != io.EOF {
			t.Errorf("a normal close is %v", err)
		}
		if err := errors.Join(c.Send([]byte("answer")), c.Close(wsconn.CodeNormal, "")); err != nil {
			t.Error(err)
		}
	})
	address := strings.TrimPrefix(url, "wss://")
	inner, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer inner.Close()
	_ = inner.SetDeadline(time.Now().Add(patience))
	below := &held{Conn: inner}
	config.ServerName, _, _ = net.SplitHostPort(address)
	config.MaxVersion = tls.VersionTLS12 // here the end arrives together with the last bytes
	conn := tls.Client(below, config)
	c := &rawConn{in: bufio.NewReader(conn)}
	_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
	if err != nil {
		t.Fatal(err)
	}
	if response, err := http.ReadResponse(c.in, nil); err != nil || response.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("answered %v, %v", response, err)
	}
	below.holding = true
	_, err = conn.Write(append(frame(final|text, "question"), normalClose...))
	if err := errors.Join(err, conn.CloseWrite(), below.letGo()); err != nil {
		t.Fatal(err)
	}
	c.expect(t, final|text, "answer")
	c.expect(t, final|closing, closePayload(1000, ""))
}
