package auth

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"
)

// clock is a clock that tests advance.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time { return c.now }

func refusedFor(t *testing.T, err error) time.Duration {
	t.Helper()
	var typed *Error
	if err == nil {
		return 0
	}
	if !errors.As(err, &typed) || typed.Kind != KindTooManyAttempts || typed.RetryAfter <= 0 {
		t.Fatalf("%v is no Error of kind %v with a time", err, KindTooManyAttempts)
	}
	return typed.RetryAfter
}

func TestAttempts_ExpireOneByOne(t *testing.T) {
	clock := &clock{now: time.Unix(1000, 0)}
	a := NewAttempts(3, time.Second, clock.Now)
	addr, other := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	for i := range 3 {
		if wait := refusedFor(t, a.Check(addr)); wait != 0 {
			t.Fatalf("attempt %d has to wait for %v", i+1, wait)
		}
		a.Failed(addr)
	}
	for range 5 { // Check has no effect
		if wait := refusedFor(t, a.Check(addr)); wait != time.Second {
			t.Fatalf("the fourth has to wait for %v, want 1s", wait)
		}
	}
	if wait := refusedFor(t, a.Check(other)); wait != 0 {
		t.Errorf("another address has to wait for %v", wait)
	}
	clock.now = clock.now.Add(time.Second)
	if wait := refusedFor(t, a.Check(addr)); wait != 0 {
		t.Fatalf("a second later it has to wait for %v", wait)
	}
	a.Failed(addr)
	if wait := refusedFor(t, a.Check(addr)); wait != time.Second {
		t.Errorf("after one more it has to wait for %v, want 1s", wait)
	}
	for range 1000 { // all concurrent
		a.Failed(addr)
	}
	if wait := refusedFor(t, a.Check(addr)); wait != time.Second {
		t.Errorf("after many at once it has to wait for %v, want 1s", wait)
	}
	clock.now = clock.now.Add(3 * time.Second)
	if err := a.Check(addr); err != nil || len(a.byAddr) != 0 || a.recent.Len() != 0 {
		t.Errorf("when all are forgiven: %v, %d remembered", err, len(a.byAddr))
	}
}

func TestAttempts_OfOnePrefix_CountTogether(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		same bool
	}{
		{"2001:db8::1", "2001:db8::ffff:ffff:ffff:ffff", true},
		{"2001:db8::1", "2001:db8:0:1::1", false},
		{"fe80::1%eth0", "fe80::2%eth1", true},
		{"::ffff:192.0.2.1", "192.0.2.1", true},
		{"192.0.2.1", "192.0.2.2", false},
	} {
		a := NewAttempts(1, time.Hour, nil)
		a.Failed(netip.MustParseAddr(tc.a))
		if same := a.Check(netip.MustParseAddr(tc.b)) != nil; same != tc.same {
			t.Errorf("%s counts as %s: %v, want %v", tc.b, tc.a, same, tc.same)
		}
	}
}

func TestAttempts_ZeroAddr_IsNotCounted(t *testing.T) {
	a := NewAttempts(1, time.Hour, nil)
	for range 10 {
		a.Failed(netip.Addr{})
	}
	if err := a.Check(netip.Addr{}); err != nil {
		t.Error(err)
	}
}

func TestAttempts_Addresses_AreBounded(t *testing.T) {
	a := NewAttempts(1, time.Hour, nil)
	addr := func(i int) netip.Addr { return netip.MustParseAddr(fmt.Sprintf("10.0.%d.%d", i/256, i%256)) }
	for i := range maxAddresses {
		a.Failed(addr(i))
	}
	a.Failed(addr(0)) // the oldest becomes the latest
	for i := range 10 {
		a.Failed(addr(maxAddresses + i))
	}
	if len(a.byAddr) != maxAddresses || a.recent.Len() != maxAddresses {
		t.Errorf("%d and %d addresses are remembered, want %d", len(a.byAddr), a.recent.Len(), maxAddresses)
	}
	for i, refused := range map[int]bool{0: true, 1: false, 10: false, 11: true, maxAddresses + 9: true} {
		if got := a.Check(addr(i)) != nil; got != refused {
			t.Errorf("address %d is remembered: %v, want %v", i, got, refused)
		}
	}
}

// peerAddr is the address of a peer in tests.
var peerAddr = &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1}

func TestAuthenticatePeer_CountsWrongCredentials(t *testing.T) {
	for kind := Kind(1); kind < KindEnd; kind++ {
		t.Run(kind.String(), func(t *testing.T) {
			a := NewAttempts(1, time.Hour, nil)
			failure := &Error{Kind: kind, Subject: "caller", Err: errors.New("no")}
			_, err := AuthenticatePeer(a, peerAddr, []string{"Bearer x"}, Credentials{}, func(c Credentials) (int, error) {
				if c.Token != "x" {
					t.Errorf("the token is %q, want x", c.Token)
				}
				return 0, failure
			})
			if !errors.Is(err, failure) {
				t.Errorf("AuthenticatePeer = %v, want %v", err, failure)
			}
			var want bool
			switch kind {
			case KindHeaderInvalid, KindTokenInvalid, KindTokenExpired, KindTokenNotYetValid, KindIssuerMismatch,
				KindAudienceMismatch, KindNotListed, KindCredentialsDisagree, KindCertificateExpired:
				want = true
			}
			if got := a.Check(addrOf(peerAddr)) != nil; got != want {
				t.Errorf("it is a failed attempt: %v, want %v", got, want)
			}
		})
	}
}

// While an address has failed too often, its credentials are not checked and not counted.
// Callers there that show none are not affected.
func TestAuthenticatePeer_TooManyAttempts_ChecksNothing(t *testing.T) {
	clock := &clock{now: time.Unix(1000, 0)}
	a := NewAttempts(1, time.Second, clock.Now)
	calls := 0
	accept := func(Credentials) (int, error) { calls++; return 1, nil }
	if _, err := AuthenticatePeer(a, peerAddr, []string{"malformed"}, Credentials{}, accept); errorKind(err) != KindHeaderInvalid || calls != 0 {
		t.Fatalf("a malformed header: %v after %d calls", err, calls)
	}
	clock.now = clock.now.Add(time.Second / 2)
	certificate := Credentials{Certificates: []*x509.Certificate{{}}}
	for name, try := range map[string]func() (int, error){
		"token":       func() (int, error) { return AuthenticatePeer(a, peerAddr, []string{"Bearer x"}, Credentials{}, accept) },
		"malformed":   func() (int, error) { return AuthenticatePeer(a, peerAddr, []string{""}, Credentials{}, accept) },
		"certificate": func() (int, error) { return AuthenticatePeer(a, peerAddr, nil, certificate, accept) },
	} {
		if _, err := try(); refusedFor(t, err) != time.Second/2 || calls != 0 {
			t.Errorf("%s: %v after %d calls, want a delay of half a second", name, err, calls)
		}
	}
	if got, err := AuthenticatePeer(a, peerAddr, nil, Credentials{Loopback: true}, accept); got != 1 || err != nil {
		t.Errorf("without credentials: %d, %v", got, err)
	}
	clock.now = clock.now.Add(time.Second / 2)
	if got, err := AuthenticatePeer(a, peerAddr, []string{"Bearer x"}, Credentials{}, accept); got != 1 || err != nil {
		t.Errorf("after the interval: %d, %v", got, err)
	}
}

// Peers of unix sockets, and all peers without secrets to guess, are not counted.
func TestAuthenticatePeer_NotLimited_ChecksCredentials(t *testing.T) {
	reject := func(Credentials) (int, error) { return 0, &Error{Kind: KindTokenInvalid, Subject: "caller"} }
	a := NewAttempts(1, time.Hour, nil)
	for range 3 {
		for _, err := range []error{
			second(AuthenticatePeer(a, &net.UnixAddr{Net: "unix"}, []string{"Bearer x"}, Credentials{}, reject)),
			second(AuthenticatePeer(nil, peerAddr, []string{"Bearer x"}, Credentials{}, reject)),
		} {
			if errorKind(err) != KindTokenInvalid {
				t.Errorf("AuthenticatePeer = %v", err)
			}
		}
	}
}

func second(_ int, err error) error { return err }

func TestHandshakeFailed_CountsUnlessClientEndedIt(t *testing.T) {
	a := NewAttempts(1, time.Hour, nil)
	alert := fmt.Errorf("handshake: %w", &net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")})
	if a.HandshakeFailed(peerAddr, alert) || a.Check(addrOf(peerAddr)) != nil {
		t.Error("a handshake that the client ended is a failed attempt")
	}
	wrong := errors.New("tls: client certificate of an unknown authority")
	if a.HandshakeFailed(peerAddr, wrong) || a.Check(addrOf(peerAddr)) == nil {
		t.Error("a wrong certificate is no failed attempt")
	}
	if !a.HandshakeFailed(peerAddr, wrong) {
		t.Error("a repeated failure is not recognized")
	}
	if (*Attempts)(nil).HandshakeFailed(peerAddr, wrong) {
		t.Error("a failure without limit is a repeated one")
	}
}
