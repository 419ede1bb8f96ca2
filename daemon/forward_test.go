package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/daemon"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/listen"
	"github.com/execwire/execwire/internal/testport"
)

// forwarding is a forward and the server behind it, whose connections the test holds.
type forwarding struct {
	t      *testing.T
	ctx    context.Context
	server net.Listener
	url    string // where clients connect
	log    *buffer
	stop   context.CancelCauseFunc
	served chan error
}

// forward runs a forward that listens at a URL.
func forward(t *testing.T, at string, change func(*config.Config)) *forwarding {
	t.Helper()
	return forwardWith(t, at, change, func(*daemon.Forward) {})
}

func forwardWith(t *testing.T, at string, change func(*config.Config), tune func(*daemon.Forward)) *forwarding {
	t.Helper()
	server, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", testport.Reserve(t))) // of which no other is a server once it is closed
	if err != nil {
		t.Fatal(err)
	}
	transport, err := client.NewTransport("grpc://" + server.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	cfg := config.Default()
	cfg.Listen = []string{at}
	change(&cfg)
	log := &buffer{}
	listening := make(chan string, 1)
	f, err := daemon.NewForward(cfg, transport, daemon.ForwardOptions{
		Logger: slog.New(slog.NewTextHandler(log, nil)), OnListen: func(url string) { listening <- url },
	})
	if err != nil {
		t.Fatal(err)
	}
	tune(f)
	patient, cancel := context.WithTimeoutCause(t.Context(), testTimeout, errors.New("the test hangs"))
	ctx, stop := context.WithCancelCause(patient)
	ended := make(chan error, 1)
	go func() { ended <- f.Serve(ctx) }()
	o := &forwarding{t: t, ctx: ctx, server: server, log: log, stop: stop, served: ended}
	t.Cleanup(func() {
		stop(errors.New("the test is over"))
		if err := <-ended; err != nil {
			t.Errorf("Serve = %v", err)
		}
		cancel()
		_ = server.Close()
	})
	select {
	case o.url = <-listening:
	case err := <-ended:
		ended <- err
		t.Fatalf("Serve = %v", err)
	}
	return o
}

// connect returns the two ends of a forwarded connection: the client's and the server's.
func (o *forwarding) connect() (near, far net.Conn) {
	o.t.Helper()
	near = o.dial()
	far, err := o.accept()
	if err != nil {
		o.t.Fatal(err)
	}
	return near, far
}

// begin is how a client of gRPC begins.
const begin = "PRI * HTTP/2.0"

// accept accepts a connection of dial at the server.
func (o *forwarding) accept() (net.Conn, error) {
	o.t.Helper()
	far, err := o.server.Accept()
	if err != nil {
		return nil, err
	}
	o.closing(far)
	got := make([]byte, len(begin))
	if _, err := io.ReadFull(far, got); err != nil || string(got) != begin {
		o.t.Fatalf("the server received %q, %v", got, err)
	}
	return far, nil
}

func (o *forwarding) dial() net.Conn {
	o.t.Helper()
	network, address := "tcp", strings.TrimPrefix(o.url, "grpc://")
	if path, ok := strings.CutPrefix(o.url, "unix://"); ok {
		network, address = "unix", path
	}
	conn, err := net.Dial(network, address)
	if err != nil {
		o.t.Fatal(err)
	}
	o.closing(conn)
	if _, err := io.WriteString(conn, begin); err != nil {
		o.t.Fatal(err)
	}
	return conn
}

// closing closes a connection when the test ends or times out.
func (o *forwarding) closing(conn net.Conn) {
	hung := context.AfterFunc(o.ctx, func() { _ = conn.Close() })
	o.t.Cleanup(func() { hung(); _ = conn.Close() })
}

// expect checks that bytes are forwarded.
func (o *forwarding) expect(from, to net.Conn, text string) {
	o.t.Helper()
	if _, err := io.WriteString(from, text); err != nil {
		o.t.Fatal(err)
	}
	got := make([]byte, len(text))
	if _, err := io.ReadFull(to, got); err != nil || string(got) != text {
		o.t.Fatalf("%q has become %q, %v", text, got, err)
	}
}

func atSocket(t *testing.T) string { return "unix://" + filepath.Join(t.TempDir(), "s") }

// A reset of a server's connection ends the client's connection only.
func TestForward_ServerReset_EndsClientConnection(t *testing.T) {
	for name, at := range map[string]string{"tcp": "grpc://127.0.0.1:0", "unix": atSocket(t)} {
		t.Run(name, func(t *testing.T) {
			o := forward(t, at, unchanged)
			near, far := o.connect()
			otherNear, otherFar := o.connect()
			for _, text := range []string{"a", strings.Repeat("b", 300_000)} {
				o.expect(near, far, text)
				o.expect(far, near, text)
			}
			_ = far.(*net.TCPConn).SetLinger(0) // a reset
			_ = far.Close()
			if n, err := near.Read(make([]byte, 1)); n != 0 || err == nil {
				t.Errorf("the client reads %d bytes, %v", n, err)
			}
			o.expect(otherNear, otherFar, "still open")
			o.expect(otherFar, otherNear, "and back")
			again, far := o.connect()
			o.expect(again, far, "again")
		})
	}
}

// The last bytes of a server arrive although the client sends at the same time.
func TestForward_ServerCloses_DeliversRest(t *testing.T) {
	o := forward(t, "grpc://127.0.0.1:0", unchanged)
	near, far := o.connect()
	words := strings.Repeat("last words ", 10_000)
	if _, err := io.WriteString(far, words); err != nil {
		t.Fatal(err)
	}
	if err := far.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(near, "too late"); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(near); err != nil || string(got) != words {
		t.Errorf("received %d bytes of %d, %v", len(got), len(words), err)
	}
}

// The server notices the end of a client, and the client the end of the forward.
func TestForward_ClientCloses_ServerSeesEnd(t *testing.T) {
	o := forward(t, atSocket(t), unchanged)
	near, far := o.connect()
	o.expect(near, far, "hello")
	_ = near.Close()
	if got, err := io.ReadAll(far); err != nil || len(got) > 0 {
		t.Errorf("the server reads %q, %v", got, err)
	}
	near, far = o.connect()
	o.expect(near, far, "hello")
	o.stop(errors.New("SIGTERM"))
	for _, conn := range []net.Conn{near, far} {
		if n, err := conn.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Errorf("a connection of a forward that ended reads %d bytes, %v", n, err)
		}
	}
	if err := <-o.served; err != nil {
		t.Errorf("Serve = %v", err)
	}
	o.served <- nil
	if _, err := os.Lstat(strings.TrimPrefix(o.url, "unix://")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket still exists: %v", err)
	}
}

// A client that leaves while the server does not read frees its place.
func TestForward_ClientLeavesStalledServer_FreesPlace(t *testing.T) {
	o := forwardWith(t, atSocket(t), func(cfg *config.Config) { cfg.Connections = 1 },
		func(f *daemon.Forward) { f.SetLinger(50 * time.Millisecond) })
	near, _ := o.connect()
	block := make([]byte, 1<<20)
	for err := error(nil); err == nil; { // until the server's buffers are full
		_ = near.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
		_, err = near.Write(block)
	}
	_ = near.Close()
	for o.ctx.Err() == nil {
		next := o.dial()
		_ = o.server.(*net.TCPListener).SetDeadline(time.Now().Add(50 * time.Millisecond))
		if far, err := o.accept(); err == nil {
			o.expect(next, far, "its place")
			return
		}
		_ = next.Close()
	}
	t.Fatal("the closed client still counts")
}

// A slow server receives what a client sent before it closed.
func TestForward_ClientLeavesSlowServer_DeliversRest(t *testing.T) {
	t.Parallel()
	const linger = 4 * time.Second // and the test may not get a processor for half of it
	o := forwardWith(t, atSocket(t), unchanged, func(f *daemon.Forward) { f.SetLinger(linger) })
	near, far := o.connect()
	checked := time.Now().Add(linger) // the forward checks for the client, which has left
	time.Sleep(linger / 2)
	sent := int64(0)
	for block, err := make([]byte, 1<<20), error(nil); err == nil; { // until the server's buffers are full
		_ = near.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
		var n int
		n, err = near.Write(block)
		sent += int64(n)
	}
	_ = near.Close()
	time.Sleep(time.Until(checked.Add(linger / 8)))
	if received, err := io.Copy(io.Discard, far); err != nil || received != sent {
		t.Errorf("%d bytes of %d arrived, %v", received, sent, err)
	}
}

func TestForward_Socket_IsPrivate(t *testing.T) {
	o := forward(t, atSocket(t), unchanged)
	info, err := os.Lstat(strings.TrimPrefix(o.url, "unix://"))
	if err != nil || info.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("the socket is %v, %v", info.Mode(), err)
	}
}

// Without a server the client's connection is closed, and the log has the reason.
func TestForward_NoServer_ClosesClient(t *testing.T) {
	o := forward(t, atSocket(t), unchanged)
	_ = o.server.Close()
	if got, err := io.ReadAll(o.dial()); len(got) > 0 {
		t.Errorf("read %q, %v", got, err)
	}
	if log := o.log.String(); !strings.Contains(log, "failed to connect a client") || !strings.Contains(log, "refused") {
		t.Errorf("the log is %s", log)
	}
}

// A client beyond connections_per_listener is closed at once; the others stay.
func TestForward_ConnectionLimit(t *testing.T) {
	o := forward(t, atSocket(t), func(cfg *config.Config) { cfg.Connections = 1 })
	near, far := o.connect()
	o.expect(near, far, "hello")
	if got, err := io.ReadAll(o.dial()); len(got) > 0 {
		t.Errorf("one too many reads %q, %v", got, err)
	}
	for !strings.Contains(o.log.String(), "connections_per_listener") { // it is logged afterwards
		if o.ctx.Err() != nil {
			t.Fatalf("the log is %s", o.log)
		}
		time.Sleep(5 * time.Millisecond)
	}
	o.expect(far, near, "still open")
}

func TestForward_ListenURLs(t *testing.T) {
	transport, err := client.NewTransport("unix:///nowhere")
	if err != nil {
		t.Fatal(err)
	}
	for _, url := range []string{"grpcs://127.0.0.1:0", "ws://127.0.0.1:0", "stdio", "off"} {
		cfg := config.Default()
		cfg.Listen = []string{url}
		_, err := daemon.NewForward(cfg, transport, daemon.ForwardOptions{})
		if wrong := new(config.Error); !errors.As(err, &wrong) || wrong.Setting != "listen" || !strings.Contains(err.Error(), "unix:///PATH") {
			t.Errorf("%s: %v", url, err)
		}
	}
	cfg := config.Default()
	cfg.Listen = []string{"grpc://192.0.2.1:0"}
	if _, err := daemon.NewForward(cfg, transport, daemon.ForwardOptions{}); !errors.As(err, new(*listen.Error)) {
		t.Errorf("not on loopback: %v", err)
	}
}
