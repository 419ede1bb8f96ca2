package listen_test

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/confinement"
	"github.com/execwire/execwire/internal/listen"
)

func TestTCP(t *testing.T) {
	l := mustListen(t, "grpc://127.0.0.1:0")
	if l.URL().Addr.Port() == 0 || l.URL().String() != "grpc://"+l.Addr().String() {
		t.Errorf("URL = %v, want the bound address %v", l.URL(), l.Addr())
	}
	roundTrip(t, l)
}

func TestTCP_PortInUse(t *testing.T) {
	first := mustListen(t, "grpc://127.0.0.1:0")
	_, err := tryListen(t, first.URL().String())
	var typed *listen.Error
	if !errors.As(err, &typed) || typed.Kind != listen.KindInUse || !errors.Is(err, syscall.EADDRINUSE) {
		t.Fatalf("Listen on a port in use = %v, want an Error of kind %v", err, listen.KindInUse)
	}
	for _, text := range []string{first.URL().String(), "already in use", "port 0"} {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("the message %q does not contain %q", err, text)
		}
	}
}

// Listen rejects URLs that Parse would not return.
func TestListen_InvalidURL_Fails(t *testing.T) {
	for _, tc := range []struct {
		url  listen.URL
		kind listen.Kind
	}{
		{listen.URL{Scheme: listen.SchemeGRPC, Addr: netip.MustParseAddrPort("0.0.0.0:0")}, listen.KindNotLoopback},
		{listen.URL{Scheme: listen.SchemeGRPC}, listen.KindNotLoopback},
		{listen.URL{Scheme: listen.SchemeGRPCS, Addr: netip.MustParseAddrPort("127.0.0.1:0")}, listen.KindNoCertificate},
		{listen.URL{Scheme: listen.SchemeGRPCS}, listen.KindNoCertificate},
		{listen.URL{Scheme: listen.SchemeUnix, Path: "relative"}, listen.KindMalformed},
		{listen.URL{Scheme: listen.SchemeOff}, listen.KindOff},
		{listen.URL{Scheme: listen.SchemeWS, Addr: netip.MustParseAddrPort("0.0.0.0:0")}, listen.KindUnauthenticated},
		{listen.URL{Scheme: listen.SchemeWS}, listen.KindUnauthenticated},
		{listen.URL{Scheme: listen.SchemeWSS, Addr: netip.MustParseAddrPort("127.0.0.1:0")}, listen.KindNoCertificate},
		{listen.URL{Scheme: listen.SchemeStdio}, listen.KindOff},
		{listen.URL{Scheme: "http"}, listen.KindMalformed},
		{listen.URL{}, listen.KindMalformed},
	} {
		l, err := listen.Listen(t.Context(), tc.url, listen.Options{Authenticated: true})
		var typed *listen.Error
		if !errors.As(err, &typed) || typed.Kind != tc.kind {
			t.Errorf("Listen(%+v) = %v, %v, want an Error of kind %v", tc.url, l, err, tc.kind)
		}
	}
}

// The kernel cannot identify a loopback peer that closed its socket before it was accepted.
// If every user is accepted, the peer is still checked for confinement, because its data is
// read.
func TestTCP_UnknownPeer_MayBeConfined(t *testing.T) {
	users, err := auth.ParseLoopbackUsers([]string{auth.LoopbackAny})
	if err != nil {
		t.Fatal(err)
	}
	refusal := errors.New("it may be confined")
	for _, closed := range []bool{true, false} {
		opened, err := listen.Listen(t.Context(), mustParse(t, "grpc://127.0.0.1:0"), listen.Options{LoopbackUsers: users, Confined: func(p confinement.Peer) error {
			if p.Unknown {
				return refusal
			}
			return nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		client, err := net.Dial("tcp", opened.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = client.Close() }()
		if closed {
			_ = client.Close()
		}
		l := dispatch(opened) // accepts only now
		defer func() { _ = l.Close() }()
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		_, info, err := listen.PeerCredentials().ServerHandshake(conn)
		if err != nil {
			t.Fatal(err)
		}
		refused := info.(listen.AuthInfo).Refused()
		if closed && (refused == nil || !strings.Contains(refused.Error(), refusal.Error())) || !closed && refused != nil {
			t.Errorf("closed %v: rejected: %v", closed, refused)
		}
	}
}
