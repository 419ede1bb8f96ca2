package client

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/wsconn"
)

// namedServer records the user agent of its clients.
type namedServer struct {
	execwirev1.UnimplementedEnvironmentServiceServer
	agents chan string
}

func (s *namedServer) GetEnvironment(ctx context.Context, _ *execwirev1.GetEnvironmentRequest) (*execwirev1.GetEnvironmentResponse, error) {
	header, _ := metadata.FromIncomingContext(ctx)
	s.agents <- strings.Join(header.Get("user-agent"), " ")
	return &execwirev1.GetEnvironmentResponse{}, nil
}

func TestWithName_GRPC_SetsUserAgent(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	named := &namedServer{agents: make(chan string, 1)}
	server := grpc.NewServer()
	execwirev1.RegisterEnvironmentServiceServer(server, named)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() { server.Stop(); <-served })
	for name, want := range map[string]string{"my-program/1.0": "my-program/1.0 grpc-go/", "": "grpc-go/"} {
		c, err := Dial(t.Context(), "grpc://"+listener.Addr().String(), WithName(name))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Describe(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := <-named.agents; !strings.HasPrefix(got, want) {
			t.Errorf("%q is told as %q", name, got)
		}
		_ = c.Close()
	}
}

func TestWithName_ExecServer_SetsClientName(t *testing.T) {
	names := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := wsconn.Accept(w, r, wsconn.Options{})
		if err != nil {
			return
		}
		message, err := conn.Receive()
		var hello struct {
			Params struct{ ClientName string }
		}
		if err == nil && json.Unmarshal(message, &hello) == nil {
			names <- hello.Params.ClientName
		}
		_ = conn.Close(wsconn.CodeNormal, "") // nothing more is received
	}))
	t.Cleanup(server.Close)
	for name, want := range map[string]string{"my-program/1.0": "my-program/1.0", "": "execwire"} {
		if _, err := Dial(t.Context(), "ws"+strings.TrimPrefix(server.URL, "http"), WithName(name)); err == nil {
			t.Error("a server that did not answer is taken for one")
		}
		if got := <-names; got != want {
			t.Errorf("%q is told as %q", name, got)
		}
	}
}
