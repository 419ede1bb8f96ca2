package auth_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/leakcheck"
)

func TestMain(m *testing.M) { leakcheck.Main(m) }

func TestContext_CarriesPrincipal(t *testing.T) {
	outer := auth.WithPrincipal(t.Context(), auth.Loopback)
	ctx := auth.WithPrincipal(outer, auth.Principal{Name: "uid:7"})
	if got, err := auth.FromContext(ctx); err != nil || got != (auth.Principal{Name: "uid:7"}) {
		t.Errorf("FromContext = %v, %v, want uid:7, the innermost", got, err)
	}
	if got, err := auth.FromContext(outer); err != nil || got != auth.Loopback {
		t.Errorf("FromContext of the outer context = %v, %v, want loopback", got, err)
	}
}

// A context without authentication must not yield a principal.
func TestFromContext_NoPrincipal_Fails(t *testing.T) {
	for name, ctx := range map[string]context.Context{
		"nothing": t.Context(),
		"zero":    auth.WithPrincipal(t.Context(), auth.Principal{}),
		"cleared": auth.WithPrincipal(auth.WithPrincipal(t.Context(), auth.Loopback), auth.Principal{}),
	} {
		t.Run(name, func(t *testing.T) {
			got, err := auth.FromContext(ctx)
			var typed *auth.Error
			if !errors.As(err, &typed) || typed.Kind != auth.KindNoPrincipal {
				t.Fatalf("FromContext = %v, %v, want an Error of kind %v", got, err, auth.KindNoPrincipal)
			}
			if !got.IsZero() {
				t.Errorf("FromContext = %v beside its error, want no principal", got)
			}
		})
	}
}

func TestPrincipals_WellKnown_AreDistinct(t *testing.T) {
	all := map[auth.Principal]bool{{}: true, auth.Loopback: true, auth.InProcess: true, auth.Peer{UID: 0}.Principal(): true}
	if len(all) != 4 {
		t.Errorf("principals clash: %v", all)
	}
	if got := (auth.Principal{}).String(); got != "nobody" {
		t.Errorf("the zero principal prints as %q, want nobody", got)
	}
}

func TestPeer_Principal(t *testing.T) {
	a, b := auth.Peer{UID: 1000, GID: 1, PID: 10}, auth.Peer{UID: 1000, GID: 2, PID: 11}
	if a.Principal() != b.Principal() || a.Principal().String() != "uid:1000" {
		t.Errorf("principals of two processes of one user = %v and %v, want uid:1000", a.Principal(), b.Principal())
	}
	if top := (auth.Peer{UID: 1<<32 - 2}); top.Principal().Name != "uid:4294967294" {
		t.Errorf("principal of a large uid = %v", top.Principal())
	}
}

// connected returns the accepted end of a unix connection made by this process.
func connected(t *testing.T) *net.UnixConn {
	t.Helper()
	lis, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lis.Close() }()
	client, err := net.Dial("unix", lis.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	conn, err := lis.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn.(*net.UnixConn)
}

func TestUnixPeer(t *testing.T) {
	got, err := auth.UnixPeer(connected(t))
	want := auth.Peer{UID: uint32(os.Getuid()), GID: uint32(os.Getgid()), PID: int32(os.Getpid())}
	if err != nil || got != want {
		t.Errorf("UnixPeer = %+v, %v, want this process: %+v", got, err, want)
	}
	if got, want := got.Principal().Name, fmt.Sprintf("uid:%d", os.Getuid()); got != want {
		t.Errorf("principal = %q, want %q", got, want)
	}
}

func TestUnixPeer_Closed_Fails(t *testing.T) {
	conn := connected(t)
	_ = conn.Close()
	got, err := auth.UnixPeer(conn)
	var typed *auth.Error
	if !errors.As(err, &typed) || typed.Kind != auth.KindPeerUnknown || !errors.Is(err, net.ErrClosed) {
		t.Errorf("UnixPeer = %+v, %v, want an Error of kind %v that wraps %v", got, err, auth.KindPeerUnknown, net.ErrClosed)
	}
}
