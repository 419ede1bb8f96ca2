package harness

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/execwire/execwire/daemon"
	"github.com/execwire/execwire/internal/config"
)

// Transport is how a client reaches a server.
type Transport string

// The transports.
const (
	InProcess     Transport = "in process"
	UnixTransport Transport = "unix"
	TCPTransport  Transport = "tcp"

	// WebsocketTransport serves JSON-RPC, which gRPC scenarios cannot use.
	WebsocketTransport Transport = "websocket"
)

// Transports are the transports of gRPC; scenarios run over each.
var Transports = []Transport{InProcess, UnixTransport, TCPTransport}

// Network returns the transport's name in package net; empty in process.
func (d Transport) Network() string {
	if d == InProcess {
		return ""
	}
	return string(d)
}

// Server is a daemon in the process of the test, with all listeners.
type Server struct {
	daemon *daemon.Daemon
	URLs   map[Transport]string // where it listens

	Stop, stopNow context.CancelCauseFunc
	served        chan error // receives what Serve returned
}

// ErrStop is the cause with which a test ends its context.
var ErrStop = errors.New("the test stops the server")

// NewServer starts a server that ends with the test. tune may change its
// configuration.
func NewServer(t testing.TB, tune func(*config.Config)) *Server {
	t.Helper()
	return NewServerIn(t, nil, tune)
}

// NewServerIn is NewServer with an environment for the server; nil is that of the test.
func NewServerIn(t testing.TB, environ []string, tune func(*config.Config)) *Server {
	t.Helper()
	cfg := config.Default()
	cfg.Listen = []string{"unix://" + filepath.Join(ShortDir(t), "s"), "tcp://127.0.0.1:0"}
	if tune != nil {
		tune(&cfg)
	}
	urls := make(chan string, len(cfg.Listen))
	d, err := daemon.New(cfg, daemon.Options{
		OnListen: func(url string) { urls <- url },
		Environ:  environ,
		Logger:   slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{daemon: d, URLs: map[Transport]string{}, served: make(chan error, 1)}
	ctx, stop := context.WithCancelCause(context.Background())
	now, stopNow := context.WithCancelCause(context.Background())
	s.Stop, s.stopNow = stop, stopNow
	go func() { s.served <- d.Serve(ctx, now) }()
	t.Cleanup(func() { s.end(t) })
	for _, listen := range cfg.Listen {
		if listen == "off" {
			continue
		}
		select {
		case url := <-urls:
			addURL(s.URLs, url)
		case err := <-s.served:
			s.served <- err
			t.Fatalf("the server did not come up: %v", err)
		}
	}
	return s
}

// addURL adds the URL of a listener, for websockets too if it serves them.
func addURL(urls map[Transport]string, url string) {
	urls[transportOf(url)] = url
	if address, ok := strings.CutPrefix(url, "tcp://"); ok {
		urls[WebsocketTransport] = "ws://" + address
	}
}

// transportOf returns the transport of a URL.
func transportOf(url string) Transport {
	switch scheme, _, _ := strings.Cut(url, ":"); scheme {
	case "unix":
		return UnixTransport
	case "ws", "wss":
		return WebsocketTransport
	case "http", "https":
		return HubTransport
	}
	return TCPTransport
}

// end stops the server at once and waits for it.
func (s *Server) end(t testing.TB) {
	s.Stop(ErrStop)
	s.stopNow(ErrStop)
	if err := <-s.served; err != nil {
		t.Errorf("Serve: %v", err)
	}
}

// Address returns the address of a listener, as package net has it.
func (s *Server) Address(d Transport) string {
	return AddressOf(s.URLs[d])
}

// AddressOf returns a URL without its scheme.
func AddressOf(url string) string {
	_, address, _ := strings.Cut(url, "://")
	return address
}

// Core returns a channel to the services without a proxy, as the principal of the
// websocket listener.
func (s *Server) Core(t testing.TB) grpc.ClientConnInterface {
	t.Helper()
	return Dial(t, "tcp", s.Address(TCPTransport))
}

// Connect returns a channel over the transport, and its proxy; nil in process. The
// client's windows are small, so that a client that does not read buffers little.
func (s *Server) Connect(t testing.TB, d Transport) (grpc.ClientConnInterface, *Proxy) {
	t.Helper()
	if d == InProcess {
		return s.daemon.Conn(), nil
	}
	wire := NewProxy(t, d.Network(), s.Address(d))
	return Dial(t, d.Network(), wire.Listener.Addr().String()), wire
}

// Dial connects to an address with the smallest windows.
func Dial(t testing.TB, network, address string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///localhost",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, address)
		}),
		grpc.WithStaticStreamWindowSize(64<<10),
		grpc.WithStaticConnWindowSize(1<<20),
		// A zero MinConnectTimeout gives a connection BaseDelay to come about, and
		// grpc-go closes one that came about at that very moment: a call on it then
		// fails with "use of closed network connection".
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 5e6, Multiplier: 1.5, MaxDelay: 1e8},
			MinConnectTimeout: 20 * time.Second}),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true), grpc.MaxCallSendMsgSize(64<<20)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// ShortDir returns a directory of the test whose path is short enough for sockets,
// unlike that of t.TempDir.
func ShortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "d")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(fmt.Errorf("failed to clean up: %w", err))
		}
	})
	return dir
}
