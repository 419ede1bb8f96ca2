package integration

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

// door is a way into a server.
type door string

const (
	inProcess door = "in process"
	unixDoor  door = "unix"
	tcpDoor   door = "tcp"

	// websocketDoor is the one for JSON-RPC, which gRPC stories cannot use.
	websocketDoor door = "websocket"
)

// doors are all ways in that there are; stories are told at each.
var doors = []door{inProcess, unixDoor, tcpDoor}

// network is the door's name in package net; empty without a wire.
func (d door) network() string {
	if d == inProcess {
		return ""
	}
	return string(d)
}

// server is a daemon inside the test, with every door open.
type server struct {
	daemon *daemon.Daemon
	urls   map[door]string // where it listens

	stop, stopNow context.CancelCauseFunc
	served        chan error // gets what Serve returned
}

var errStop = errors.New("the test stops the server")

// newServer starts a server that ends with the test. tune may change its
// configuration.
func newServer(t testing.TB, tune func(*config.Config)) *server {
	t.Helper()
	return newServerIn(t, nil, tune)
}

// newServerIn is newServer with an environment for the server; nil is ours.
func newServerIn(t testing.TB, environ []string, tune func(*config.Config)) *server {
	t.Helper()
	cfg := config.Default()
	cfg.Listen = []string{"unix://" + filepath.Join(shortDir(t), "s"), "grpc://127.0.0.1:0", "ws://127.0.0.1:0"}
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
	s := &server{daemon: d, urls: map[door]string{}, served: make(chan error, 1)}
	ctx, stop := context.WithCancelCause(context.Background())
	now, stopNow := context.WithCancelCause(context.Background())
	s.stop, s.stopNow = stop, stopNow
	go func() { s.served <- d.Serve(ctx, now) }()
	t.Cleanup(func() { s.end(t) })
	for _, listen := range cfg.Listen {
		if listen == "off" {
			continue
		}
		select {
		case url := <-urls:
			s.urls[doorOf(url)] = url
		case err := <-s.served:
			s.served <- err
			t.Fatalf("the server did not come up: %v", err)
		}
	}
	return s
}

// doorOf is the door that a server opened at a URL.
func doorOf(url string) door {
	switch scheme, _, _ := strings.Cut(url, ":"); scheme {
	case "unix":
		return unixDoor
	case "ws", "wss":
		return websocketDoor
	case "http", "https":
		return hubDoor
	}
	return tcpDoor
}

// end stops the server at once and waits for it.
func (s *server) end(t testing.TB) {
	s.stop(errStop)
	s.stopNow(errStop)
	if err := <-s.served; err != nil {
		t.Errorf("Serve: %v", err)
	}
}

// address is where the door is in the terms of package net.
func (s *server) address(d door) string {
	return addressIn(s.urls[d])
}

// addressIn is what follows the scheme of a URL.
func addressIn(url string) string {
	_, address, _ := strings.Cut(url, "://")
	return address
}

// core is a channel to the services that does not go through a proxy, as the
// principal whom the websocket door lets in.
func (s *server) core(t testing.TB) grpc.ClientConnInterface {
	t.Helper()
	return dial(t, "tcp", s.address(tcpDoor))
}

// connect returns a channel through the door, and the wire it goes over; nil
// where there is none. The client's windows are small, so that one who does not
// read holds little.
func (s *server) connect(t testing.TB, d door) (grpc.ClientConnInterface, *proxy) {
	t.Helper()
	if d == inProcess {
		return s.daemon.Conn(), nil
	}
	wire := newProxy(t, d.network(), s.address(d))
	return dial(t, d.network(), wire.listener.Addr().String()), wire
}

// dial connects to an address with the smallest windows.
func dial(t testing.TB, network, address string) *grpc.ClientConn {
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

// shortDir is a directory of the test whose path leaves room for the name of a
// socket, unlike t.TempDir.
func shortDir(t testing.TB) string {
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
