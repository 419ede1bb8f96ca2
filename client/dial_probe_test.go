package client

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// serveRaw calls serve for each connection, with its number from 0, one at a time.
func serveRaw(t *testing.T, serve func(n int, conn net.Conn)) (url string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for n := 0; ; n++ {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serve(n, conn)
		}
	})
	t.Cleanup(func() { _ = listener.Close(); serving.Wait() })
	return "grpc://" + listener.Addr().String()
}

func reset(conn net.Conn) {
	_ = conn.(*net.TCPConn).SetLinger(0)
	_ = conn.Close()
}

// The first connections end in every way that a network or a restarting server can
// cause.
func TestDial_LostBeforeAnswer_Retries(t *testing.T) {
	for name, end := range map[string]func(net.Conn){
		"reset":  reset,
		"closed": func(conn net.Conn) { _ = conn.Close() },
		"closed when the client has greeted": func(conn net.Conn) {
			_, _ = io.ReadFull(conn, make([]byte, 24))
			_ = conn.Close()
		},
		"reset after the first frame": func(conn net.Conn) {
			_, _ = conn.Write([]byte{0, 0, 6, 4, 0, 0, 0, 0, 0, 0}) // an incomplete SETTINGS frame
			reset(conn)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			accepted := newPipeListener()
			server := grpc.NewServer()
			execwirev1.RegisterProcessServiceServer(server, &fakeServer{})
			var serving sync.WaitGroup
			serving.Go(func() { _ = server.Serve(accepted) })
			defer serving.Wait()
			defer server.Stop()
			url := serveRaw(t, func(n int, conn net.Conn) {
				if n < 5 {
					end(conn)
				} else {
					accepted.conns <- conn
				}
			})
			c, err := Dial(t.Context(), url)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// The context has no deadline: the server would see further attempts.
func TestDial_NotGRPC_FailsAtOnce(t *testing.T) {
	for name, answer := range map[string]string{
		"HTTP/1": "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n",
		"SMTP":   "220 mail.example.com ESMTP\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			var connections atomic.Int32
			url := serveRaw(t, func(_ int, conn net.Conn) {
				connections.Add(1)
				_, _ = io.WriteString(conn, answer)
				_, _ = io.Copy(io.Discard, conn)
				_ = conn.Close()
			})
			_, err := Dial(t.Context(), url)
			if err == nil || !strings.Contains(err.Error(), "does not speak gRPC") || connections.Load() != 2 {
				t.Errorf("got %v after %d connections, want 2: an attempt and a probe", err, connections.Load())
			}
		})
	}
}

func TestDial_EveryConnectionLost_FailsAtDeadline(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	tired := errors.New("tired")
	url := serveRaw(t, func(n int, conn net.Conn) {
		if n == 4 {
			cancel(tired)
		}
		reset(conn)
	})
	_, err := Dial(ctx, url)
	var dial *DialError
	if !errors.As(err, &dial) || !errors.Is(err, tired) {
		t.Errorf("got %v, want a DialError with the cause of the context", err)
	}
	bounded, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer stop()
	if _, err := Dial(bounded, url); !errors.As(err, &dial) {
		t.Errorf("got %v, want a DialError", err)
	}
}

// pipeListener is a listener with connections from elsewhere.
type pipeListener struct {
	conns chan net.Conn
	over  chan struct{}
	once  sync.Once
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn, 100), over: make(chan struct{})}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.over:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.over) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }
