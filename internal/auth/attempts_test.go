package auth

import (
	"errors"
	"fmt"
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
