package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"google.golang.org/grpc"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/testport"
)

// serveFake serves a fake on a real socket.
func serveFake(t testing.TB, network, address string, fake *fakeServer) net.Addr {
	t.Helper()
	listener, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	execwirev1.RegisterProcessServiceServer(server, fake)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() {
		server.Stop()
		serving.Wait()
	})
	return listener.Addr()
}

func TestDial_EveryListener(t *testing.T) {
	play := sends(nil, started(0), events(stdout(1, 0, "hello"), exited(2, 3), closed(3, 5)))
	socket := filepath.Join(t.TempDir(), "socket")
	urls := []string{
		"grpc://" + serveFake(t, "tcp", "127.0.0.1:0", &fakeServer{beyond: play}).String(),
		"unix://" + serveFake(t, "unix", socket, &fakeServer{beyond: play}).String(),
	}
	for _, url := range urls {
		c, err := Dial(t.Context(), url)
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		var out strings.Builder
		exit, err := c.Run(t.Context(), RunOptions{Process: direct("x"), Stdout: &out})
		if err != nil || exit.Code != 3 || out.String() != "hello" {
			t.Errorf("%s: got %q, %+v, %v", url, &out, exit, err)
		}
		if err := c.Close(); err != nil {
			t.Errorf("%s: failed to close: %v", url, err)
		}
	}
}

func TestDial_Unreachable_ReturnsCause(t *testing.T) {
	t.Run("refused", func(t *testing.T) {
		url := fmt.Sprintf("grpc://127.0.0.1:%d", testport.Reserve(t))
		_, err := Dial(t.Context(), url)
		var dial *DialError
		if !errors.As(err, &dial) || dial.URL != url || !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("got %v, want a DialError with ECONNREFUSED", err)
		}
	})
	t.Run("no socket", func(t *testing.T) {
		_, err := Dial(t.Context(), "unix://"+filepath.Join(t.TempDir(), "none"))
		if !errors.Is(err, syscall.ENOENT) {
			t.Errorf("got %v, want ENOENT", err)
		}
	})
	t.Run("not gRPC", func(t *testing.T) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		var accepting sync.WaitGroup
		accepting.Go(func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				_, _ = conn.Write([]byte("220 mail.example.com ESMTP\r\n"))
				_ = conn.Close()
			}
		})
		_, err = Dial(t.Context(), "grpc://"+listener.Addr().String())
		var dial *DialError
		if !errors.As(err, &dial) {
			t.Errorf("got %v, want a DialError", err)
		}
		_ = listener.Close()
		accepting.Wait()
	})
	t.Run("cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		tired := errors.New("tired")
		cancel(tired)
		_, err := Dial(ctx, "grpc://127.0.0.1:1")
		if !errors.Is(err, tired) {
			t.Errorf("got %v, want the cause of the context", err)
		}
	})
}

func TestDial_InvalidURL_Fails(t *testing.T) {
	for url, hint := range map[string]string{
		"wss:///path":        "wss://HOST:PORT",
		"stdio:":             "stdio:COMMAND",
		"http://host:1":      "tcp://HOST:PORT",
		"127.0.0.1:7420":     "tcp://HOST:PORT",
		"":                   "tcp://HOST:PORT",
		"https://host:1":     "tls://HOST:PORT for https",
		"tls://host":         "host and port",
		"grpc://host":        "host and port",
		"grpc://:7420":       "host and port",
		"grpc://host:1/path": "host and port",
		"unix://run/socket":  "absolute",
		"unix:relative":      "absolute",
	} {
		_, err := Dial(t.Context(), url)
		var wrong *URLError
		if !errors.As(err, &wrong) || wrong.URL != url || !strings.Contains(err.Error(), hint) {
			t.Errorf("%q: got %v, want a URLError with %q", url, err, hint)
		}
	}
}
