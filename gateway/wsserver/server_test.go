package wsserver_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/execwire/execwire/gateway/wsserver"
	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/wsconn"
)

func TestShutdown_WaitsForConnections(t *testing.T) {
	cause := make(chan error)
	serving, release := make(chan struct{}), make(chan struct{})
	s := serveHTTP(t, wsserver.HTTPConfig{Serve: func(ctx context.Context, _ auth.Caller, c *wsconn.Conn) {
		close(serving)
		<-ctx.Done()
		cause <- context.Cause(ctx)
		<-release
		_ = c.Close(wsconn.CodeGoingAway, "the server is shutting down")
	}})
	c, err := wsconn.Dial(t.Context(), "ws://"+s.address, wsconn.DialOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(0, "")
	end := make(chan error, 1)
	go func() {
		_, err := c.Receive()
		_ = c.Close(0, "") // the server waits for this
		end <- err
	}()
	<-serving
	if n := s.Connections(); n != 1 {
		t.Errorf("there are %d connections", n)
	}
	errDeadline := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errDeadline)
	shut := make(chan error, 1)
	go func() { shut <- s.Shutdown(ctx) }()
	if err := <-cause; !errors.Is(err, wsserver.ErrShutdown) {
		t.Errorf("the context of the connection ended with %v", err)
	}
	if err := <-shut; !errors.Is(err, errDeadline) {
		t.Errorf("Shutdown returned %v", err)
	}
	for request, want := range map[string]int{
		"GET /readyz HTTP/1.1\nHost: x\n\n":  http.StatusServiceUnavailable,
		"GET /healthz HTTP/1.1\nHost: x\n\n": http.StatusOK,
		upgrade("/", nil):                    http.StatusServiceUnavailable,
	} {
		if response, _ := s.ask(t, request); response.StatusCode != want {
			t.Errorf("%.20q returned %d, want %d", request, response.StatusCode, want)
		}
	}
	close(release)
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if n := s.Connections(); n != 0 {
		t.Errorf("there are %d connections after the shutdown", n)
	}
	var closed *wsconn.ClosedError
	if err := <-end; !errors.As(err, &closed) || closed.Code != wsconn.CodeGoingAway {
		t.Errorf("the client received %v", err)
	}
}

func TestReady_False_RejectsUpgrades(t *testing.T) {
	var ready atomic.Bool
	ready.Store(true)
	s := serveHTTP(t, wsserver.HTTPConfig{Ready: ready.Load})
	ask := func() []int {
		health, _ := s.ask(t, "GET /readyz HTTP/1.1\nHost: x\n\n")
		socket, _ := s.ask(t, upgrade("/", nil))
		return []int{health.StatusCode, socket.StatusCode}
	}
	for _, c := range []struct {
		ready bool
		want  string
	}{{true, "[200 101]"}, {false, "[503 503]"}, {true, "[200 101]"}} {
		ready.Store(c.ready)
		if got := fmt.Sprint(ask()); got != c.want {
			t.Errorf("ready %v: %s, want %s", c.ready, got, c.want)
		}
	}
}

func TestRequestHeader_TooLarge_IsRejected(t *testing.T) {
	s := serveHTTP(t, wsserver.HTTPConfig{})
	response, _ := s.ask(t, "GET /readyz HTTP/1.1\nHost: x\nX: "+strings.Repeat("x", 80<<10)+"\n\n")
	if response.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("got %d", response.StatusCode)
	}
	response, _ = s.ask(t, "GET /readyz HTTP/1.1\nHost: x\nX: "+strings.Repeat("x", 60<<10)+"\n\n")
	if response.StatusCode != http.StatusOK {
		t.Errorf("a header within the limit returned %d", response.StatusCode)
	}
}

// An incomplete request times out; a silent websocket does not.
func TestRequestHeader_Incomplete_TimesOut(t *testing.T) {
	t.Parallel()
	s := serveHTTPWithin(t, 3*time.Second, wsserver.HTTPConfig{Serve: func(_ context.Context, _ auth.Caller, c *wsconn.Conn) {
		message, err := c.Receive()
		if err == nil {
			err = c.Send(message)
		}
		if err := errors.Join(err, c.Close(wsconn.CodeNormal, "")); err != nil {
			t.Error(err)
		}
	}})
	quiet, err := wsconn.Dial(t.Context(), "ws://"+s.address, wsconn.DialOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer quiet.Close(0, "")
	var slow []net.Conn
	for _, begun := range []string{"", "GET / HT", "GET / HTTP/1.1\r\nHost: x\r\n"} {
		conn, err := net.Dial("tcp", s.address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, begun); err != nil {
			t.Fatal(err)
		}
		slow = append(slow, conn)
	}
	for _, conn := range slow {
		if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		if answer, err := io.ReadAll(conn); err != nil || strings.Contains(string(answer), "101") {
			t.Errorf("an incomplete request: %q, %v", answer, err)
		}
	}
	if err := quiet.Send([]byte("still here")); err != nil {
		t.Error(err)
	}
	if answer, err := quiet.Receive(); string(answer) != "still here" || err != nil {
		t.Errorf("received %q, %v", answer, err)
	}
}

// The server speaks HTTP/1 only. The preface of HTTP/2 gets an error.
func TestHTTP2Preface_IsRejected(t *testing.T) {
	s := serveHTTP(t, wsserver.HTTPConfig{})
	response, _ := s.ask(t, "PRI * HTTP/2.0\n\nSM\n\n")
	if response.StatusCode < 400 {
		t.Errorf("got %s", response.Status)
	}
}
