package daemon

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/jsonrpc"
)

// panickingConn is a connection whose calls panic.
type panickingConn struct{ grpc.ClientConnInterface }

// A panic is logged, and ends no other connection.
func TestClients_Panic_EndsOneConnection(t *testing.T) {
	var log bytes.Buffer
	c, err := newClients(clientsConfig{metrics: newServerMetrics(""),
		cfg: config.Default(), logger: slog.New(slog.NewTextHandler(&log, nil)),
		upstream: func(clientAuthInfo) grpc.ClientConnInterface { return panickingConn{} },
	})
	if err != nil {
		t.Fatal(err)
	}
	in, stdin := io.Pipe()
	transport := jsonrpc.NewStdio(in, nopCloser{io.Discard}, jsonrpc.StdioOptions{})
	defer func() { _ = transport.Close(0, "") }()
	go func() {
		_, _ = io.WriteString(stdin, `{"id":1,"method":"initialize","params":{"clientName":"c"}}`+"\n")
	}()
	c.serveTransport(context.Background(), "p", clientAuthInfo{}, transport)
	if !strings.Contains(log.String(), "panicked") || !strings.Contains(log.String(), "exec-server stdio") {
		t.Errorf("the log is %q", log.String())
	}
	if len(c.live) != 0 {
		t.Error("the client is still counted")
	}
	if err := c.stop(); err != nil {
		t.Errorf("stop = %v", err)
	}
}

// hangingConn is a connection whose calls ignore their context and do not return.
type hangingConn struct {
	grpc.ClientConnInterface
	called, over chan struct{}
}

func (s hangingConn) Invoke(context.Context, string, any, any, ...grpc.CallOption) error {
	return s.block()
}

func (s hangingConn) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, s.block()
}

func (s hangingConn) block() error {
	close(s.called)
	<-s.over
	return io.ErrUnexpectedEOF
}

// Stopping does not wait without limit for a call that hangs.
func TestClients_StopWithHangingCall_TimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := hangingConn{called: make(chan struct{}), over: make(chan struct{})}
		c, err := newClients(clientsConfig{metrics: newServerMetrics(""),
			cfg: config.Default(), logger: slog.New(slog.DiscardHandler),
			upstream: func(clientAuthInfo) grpc.ClientConnInterface { return upstream },
		})
		if err != nil {
			t.Fatal(err)
		}
		in, stdin := io.Pipe()
		transport := jsonrpc.NewStdio(in, nopCloser{io.Discard}, jsonrpc.StdioOptions{})
		served := runAsync(func() { c.serveTransport(context.Background(), "p", clientAuthInfo{}, transport) })
		_, _ = io.WriteString(stdin, `{"id":1,"method":"initialize","params":{"clientName":"c"}}`+"\n")
		<-upstream.called
		began := time.Now()
		if err := c.stop(); !errors.Is(err, errDisconnect) {
			t.Errorf("stop = %v", err)
		}
		if took := time.Since(began); took > flushTimeout+disconnectTimeout {
			t.Errorf("it took %v", took)
		}
		close(upstream.over)
		<-served
	})
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }
