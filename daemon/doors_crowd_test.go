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

// Strangers cannot take all places of a door that they can reach: one who
// is let in gets that of the stranger who has been there longest, and keeps it.
func TestStrangersDoNotKeepPrincipalsOut(t *testing.T) {
	t.Run("grpcs", func(t *testing.T) { strangersDoNotKeepPrincipalsOut(t, onTLS) })
	t.Run("grpc", func(t *testing.T) { strangersDoNotKeepPrincipalsOut(t, onGRPC) })
}

// listFrom is list, and returns from where the connection comes, which another one
// does not.
func listFrom(ctx context.Context, conn *grpc.ClientConn) (net.Addr, error) {
	var p peer.Peer
	_, err := execwirev1.NewProcessServiceClient(conn).ListProcesses(ctx, &execwirev1.ListProcessesRequest{}, grpc.Peer(&p))
	return p.LocalAddr, err
}

func strangersDoNotKeepPrincipalsOut(t *testing.T, crowded int) {
	l := lock(t, func(cfg *config.Config) {
		cfg.Connections = 2
		cfg.FailedAttempts, cfg.FailedAttemptInterval = 1, config.Duration(time.Hour)
	}, func(l *locked) string { return l.principal("ci", `"all"`) })
	u, err := url.Parse(l.urls[crowded])
	if err != nil {
		t.Fatal(err)
	}
	principals := map[*grpc.ClientConn]net.Addr{} // with where their connections are
	for range 2 {
		var strangers []net.Conn
		for range 3 {
			stranger, err := net.Dial("tcp", u.Host)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = stranger.Close() }()
			strangers = append(strangers, stranger)
		}
		conn := l.dial(crowded)
		if principals[conn], err = listFrom(l.as("ci"), conn); err != nil { // to be put out is no failed attempt
			t.Fatalf("while strangers are there: %v", err)
		}
		keepInUse(t, l.as("ci"), conn)
		_ = strangers[0].SetReadDeadline(time.Now().Add(hang))
		if _, err := io.Copy(io.Discard, strangers[0]); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the oldest stranger: %v, want it closed", err)
		}
	}
	expectNoPlace(t, list(l.as("ci"), l.dial(crowded)), 2)
	for conn, was := range principals {
		if is, err := listFrom(l.as("ci"), conn); err != nil || is.String() != was.String() {
			t.Errorf("a principal's connection from %v is one from %v: %v", was, is, err)
		}
	}
	for _, door := range []int{onTLS + onGRPC - crowded, onUnix} { // each has its own places
		if err := list(l.as("ci"), l.dial(door)); err != nil {
			t.Errorf("%s: %v", l.urls[door], err)
		}
	}
	if got := strings.Count(l.log.String(), "as many connections as it may have"); got != 1 { // and not more within a while
		t.Errorf("the log tells %d times that a listener is full", got)
	}
}
