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

// broken panics when it is used.
type broken struct{ grpc.ClientConnInterface }

// What goes wrong with one client is logged, and ends nobody else.
func TestAPanicEndsOneConnection(t *testing.T) {
	var log bytes.Buffer
	c, err := newClients(clientsConfig{
		cfg: config.Default(), logger: slog.New(slog.NewTextHandler(&log, nil)),
		upstream: func(clientAuthInfo) grpc.ClientConnInterface { return broken{} },
	})
	if err != nil {
		t.Fatal(err)
	}
	in, said := io.Pipe()
	transport := jsonrpc.NewStdio(in, nopCloser{io.Discard}, jsonrpc.StdioOptions{})
	defer func() { _ = transport.Close(0, "") }()
	go func() { _, _ = io.WriteString(said, `{"id":1,"method":"initialize","params":{"clientName":"c"}}`+"\n") }()
	c.serveTransport(context.Background(), "p", clientAuthInfo{}, transport)
	if !strings.Contains(log.String(), "panicked") || !strings.Contains(log.String(), "exec-server stdio") {
		t.Errorf("the log says %q", log.String())
	}
	if len(c.live) != 0 {
		t.Error("the client is still counted")
	}
	if err := c.stop(); err != nil {
		t.Errorf("stop = %v", err)
	}
}

// stuck does not answer, and does not care who still waits.
type stuck struct {
	grpc.ClientConnInterface
	called, over chan struct{}
}

func (s stuck) Invoke(context.Context, string, any, any, ...grpc.CallOption) error { return s.hang() }

func (s stuck) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, s.hang()
}

func (s stuck) hang() error {
	close(s.called)
	<-s.over
	return io.ErrUnexpectedEOF
}

// A call that hangs does not hold the end of the server up for good.
func TestAClientThatHangsIsLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := stuck{called: make(chan struct{}), over: make(chan struct{})}
		c, err := newClients(clientsConfig{
			cfg: config.Default(), logger: slog.New(slog.DiscardHandler),
			upstream: func(clientAuthInfo) grpc.ClientConnInterface { return upstream },
		})
		if err != nil {
			t.Fatal(err)
		}
		in, said := io.Pipe()
		transport := jsonrpc.NewStdio(in, nopCloser{io.Discard}, jsonrpc.StdioOptions{})
		served := runAsync(func() { c.serveTransport(context.Background(), "p", clientAuthInfo{}, transport) })
		_, _ = io.WriteString(said, `{"id":1,"method":"initialize","params":{"clientName":"c"}}`+"\n")
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
