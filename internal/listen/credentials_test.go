package listen_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/execwire/execwire/internal/listen"
)

// describeCaller formats the identity of the caller in a handler.
func describeCaller(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return "no peer"
	}
	info, ok := p.AuthInfo.(listen.AuthInfo)
	switch {
	case !ok:
		return fmt.Sprintf("%T", p.AuthInfo)
	case info.Peer != nil:
		return fmt.Sprintf("%s %v", info.AuthType(), info.Peer.Principal())
	}
	return info.AuthType()
}

// serveOn runs a gRPC server on all listeners that returns the caller in a
// header.
func serveOn(t *testing.T, listeners ...net.Listener) {
	t.Helper()
	sendCaller := func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		if err := ss.SetHeader(metadata.Pairs("who", describeCaller(ss.Context()))); err != nil {
			return err
		}
		return next(srv, ss)
	}
	server := grpc.NewServer(grpc.Creds(listen.PeerCredentials()), grpc.StreamInterceptor(sendCaller))
	healthpb.RegisterHealthServer(server, health.NewServer())
	var wg sync.WaitGroup
	for _, l := range listeners {
		wg.Go(func() { _ = server.Serve(l) })
	}
	t.Cleanup(func() { server.Stop(); wg.Wait() })
}

func TestPeerCredentials_AllListeners(t *testing.T) {
	tcp, tcp6 := mustListen(t, "grpc://127.0.0.1:0"), mustListen(t, "grpc://127.0.0.2:0")
	sock := mustListen(t, "unix://"+socketPath(t))
	serveOn(t, tcp, tcp6, sock)
	for _, tc := range []struct{ target, want string }{
		{tcp.Addr().String(), "loopback"},
		{tcp6.Addr().String(), "loopback"},
		{sock.URL().String(), fmt.Sprintf("unix uid:%d", os.Getuid())},
	} {
		if got := call(t.Context(), tc.target); got != tc.want {
			t.Errorf("through %s the handler sees %q, want %q", tc.target, got, tc.want)
		}
	}
}

// The socket's mode rejects other users. The helper connects after a change of the mode, so
// nothing else rejected it. The kernel determines its identity.
func TestUnix_OtherUser(t *testing.T) {
	path := filepath.Join(publicDir(t), "s")
	serveOn(t, mustListen(t, "unix://"+path))
	if os.Getuid() != 0 {
		if info, err := os.Lstat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("mode = %v, %v, want 0600", info.Mode(), err)
		}
		return // only root can change its user
	}
	if got := callAs(t, nobody, "unix://"+path); !strings.Contains(got, "permission denied") {
		t.Errorf("another user's call = %q, want permission denied", got)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	if got, want := callAs(t, nobody, "unix://"+path), fmt.Sprintf("unix uid:%d", nobody); got != want {
		t.Errorf("another user's call = %q, want %q", got, want)
	}
}

type wrapped struct{ net.Conn }

func TestPeerCredentials_UnknownConnection_Fails(t *testing.T) {
	a, b := net.Pipe()
	defer func() { _, _ = a.Close(), b.Close() }()
	otherHost := listen.Counted(farAway{a}) // without TLS
	for _, conn := range []net.Conn{a, wrapped{a}, otherHost} {
		if _, info, err := listen.PeerCredentials().ServerHandshake(conn); err == nil {
			t.Errorf("ServerHandshake of a %T = %v, want an error", conn, info)
		}
	}
}

func TestPeerCredentials_Client_Fails(t *testing.T) {
	creds := listen.PeerCredentials()
	if got := creds.Clone().Info().SecurityProtocol; got != "insecure" {
		t.Errorf("security protocol = %q, want insecure", got)
	}
	conn, err := grpc.NewClient("passthrough:///127.0.0.1:1", grpc.WithTransportCredentials(creds),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			a, b := net.Pipe()
			return a, b.Close()
		}))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, err = healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{})
	if !strings.Contains(status.Convert(err).Message(), "for servers") {
		t.Errorf("a client with these credentials gets %v, want an error that they are for servers", err)
	}
}
