package daemon

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/execwire/execwire/gateway/jsonrpc"
	"github.com/execwire/execwire/internal/config"
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
	c.serveTransport(context.Background(), clientAuthInfo{}, transport)
	if !strings.Contains(log.String(), "panicked") || !strings.Contains(log.String(), "exec-server stdio") {
		t.Errorf("the log says %q", log.String())
	}
	if len(c.live) != 0 {
		t.Error("the client is still counted")
	}
	c.stop()
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }
