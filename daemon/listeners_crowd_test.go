package daemon_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/config"
)

// Unauthenticated connections cannot exhaust a listener: an authenticated one replaces the
// oldest of them, and is kept.
func TestListener_UnauthenticatedConnections_DoNotBlockPrincipals(t *testing.T) {
	t.Run("grpcs", func(t *testing.T) { testUnauthenticatedConnections(t, onTLS) })
	t.Run("grpc", func(t *testing.T) { testUnauthenticatedConnections(t, onGRPC) })
}

// listFrom is list, and also returns the client's address of the connection.
func listFrom(ctx context.Context, conn *grpc.ClientConn) (net.Addr, error) {
	var p peer.Peer
	_, err := execwirev1.NewProcessServiceClient(conn).ListProcesses(ctx, &execwirev1.ListProcessesRequest{}, grpc.Peer(&p))
	return p.LocalAddr, err
}

func testUnauthenticatedConnections(t *testing.T, crowded int) {
	l := lock(t, func(cfg *config.Config) {
		cfg.Connections = 2
		cfg.FailedAttempts, cfg.FailedAttemptInterval = 1, config.Duration(time.Hour)
	}, func(l *locked) string { return l.principal("ci", `"all"`) })
	u, err := url.Parse(l.urls[crowded])
	if err != nil {
		t.Fatal(err)
	}
	principals := map[*grpc.ClientConn]net.Addr{} // and the addresses of their connections
	for range 2 {
		var unauthenticated []net.Conn
		for range 3 {
			conn, err := net.Dial("tcp", u.Host)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			unauthenticated = append(unauthenticated, conn)
		}
		conn := l.dial(crowded)
		if principals[conn], err = listFrom(l.as("ci"), conn); err != nil { // an eviction is no failed attempt
			t.Fatalf("beside unauthenticated connections: %v", err)
		}
		holdStream(t, l.as("ci"), conn)
		_ = unauthenticated[0].SetReadDeadline(time.Now().Add(testTimeout))
		if _, err := io.Copy(io.Discard, unauthenticated[0]); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the oldest unauthenticated connection: %v, want it closed", err)
		}
	}
	expectConnectionLimit(t, list(l.as("ci"), l.dial(crowded)), 2)
	for conn, was := range principals {
		if is, err := listFrom(l.as("ci"), conn); err != nil || is.String() != was.String() {
			t.Errorf("a principal's connection from %v was replaced by one from %v: %v", was, is, err)
		}
	}
	for _, listener := range []int{onTLS + onGRPC - crowded, onUnix} { // each listener has its own limit
		if err := list(l.as("ci"), l.dial(listener)); err != nil {
			t.Errorf("%s: %v", l.urls[listener], err)
		}
	}
	if got := strings.Count(l.log.String(), "its limit is reached"); got != 1 { // at most once in a while
		t.Errorf("the log reports the full listener %d times", got)
	}
}
