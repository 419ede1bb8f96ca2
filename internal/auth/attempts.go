package auth

import (
	"container/list"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// maxAddresses is how many addresses with failed attempts are remembered. The one
// that failed longest ago is forgotten first.
const maxAddresses = 4096

// ipv6Bits is the prefix length by which IPv6 addresses are counted: a host
// usually controls a whole /64.
const ipv6Bits = 64

// Attempts limits failed authentication attempts per address. A nil *Attempts limits
// nothing. It may be used concurrently. Concurrent attempts of one address may all
// pass if the first one does.
type Attempts struct {
	now func() time.Time

	mu       sync.Mutex
	limit    int                            // guarded by mu
	interval time.Duration                  // guarded by mu
	recent   *list.List                     // guarded by mu; of *failures, latest first
	byAddr   map[netip.Prefix]*list.Element // guarded by mu
}

// failures are the failed attempts of one address.
type failures struct {
	addr netip.Prefix
	// expires is when the last of them expires: each takes one interval.
	expires time.Time
}

// NewAttempts allows limit failed attempts at once; they expire one by one, each
// after another interval. Both must be positive. now is the clock; nil is
// time.Now.
func NewAttempts(limit int, interval time.Duration, now func() time.Time) *Attempts {
	if now == nil {
		now = time.Now
	}
	return &Attempts{limit: limit, interval: interval, now: now, recent: list.New(), byAddr: map[netip.Prefix]*list.Element{}}
}

// SetLimits changes the limits. What failed attempts count already stays.
func (a *Attempts) SetLimits(limit int, interval time.Duration) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.limit, a.interval = limit, interval
}

// Check returns an *[Error] of kind [KindTooManyAttempts] if addr has failed too
// often. It must be called before credentials are checked: valid ones are
// rejected too, otherwise a flood could still guess. The zero Addr is never
// rejected.
func (a *Attempts) Check(addr netip.Addr) error {
	if a == nil || !addr.IsValid() {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	element, ok := a.byAddr[prefixOf(addr)]
	if !ok {
		return nil
	}
	left := element.Value.(*failures).expires.Sub(a.now())
	if left <= 0 {
		a.forget(element)
		return nil
	}
	wait := left - time.Duration(a.limit-1)*a.interval
	if wait <= 0 {
		return nil
	}
	return &Error{Kind: KindTooManyAttempts, Subject: "caller", RetryAfter: wait,
		Err: fmt.Errorf("%d attempts from %v failed; the next is allowed in %v", a.limit, prefixOf(addr), wait.Round(time.Millisecond))}
}

// Failed counts a failed attempt of addr. The zero Addr is not counted.
func (a *Attempts) Failed(addr netip.Addr) {
	if a == nil || !addr.IsValid() {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	now, key := a.now(), prefixOf(addr)
	element, ok := a.byAddr[key]
	if !ok {
		if a.recent.Len() >= maxAddresses {
			a.forget(a.recent.Back())
		}
		element = a.recent.PushFront(&failures{addr: key, expires: now})
		a.byAddr[key] = element
	}
	a.recent.MoveToFront(element)
	f := element.Value.(*failures)
	if f.expires.Before(now) {
		f.expires = now
	}
	// Concurrent attempts may fail more often than the limit; the excess does not
	// count.
	f.expires = f.expires.Add(a.interval)
	if limit := now.Add(time.Duration(a.limit) * a.interval); f.expires.After(limit) {
		f.expires = limit
	}
}

// AuthenticatePeer calls authenticate with the credentials of the peer at an address,
// and the token in the values of its authorization header. It counts failed attempts;
// while the address has failed too often, no credentials are checked.
func AuthenticatePeer[C any](
	a *Attempts, from net.Addr, authorization []string, c Credentials, authenticate func(Credentials) (C, error),
) (caller C, err error) {
	addr := addrOf(from)
	if len(authorization) > 0 || len(c.Certificates) > 0 {
		if err := a.Check(addr); err != nil {
			return caller, err
		}
	}
	if c.Token, err = ParseAuthorization(authorization); err == nil {
		caller, err = authenticate(c)
	}
	if isFailedAttempt(err) {
		a.Failed(addr)
	}
	return caller, err
}

// Verify calls verify for what the peer at an address shows, a signed URL or the answer of
// an OpenID provider, and counts invalid ones; while the address has shown too many, it is
// not called. An expired URL has a valid signature and does not count.
func (a *Attempts) Verify(from net.Addr, verify func() error) error {
	addr := addrOf(from)
	err := a.Check(addr)
	if err == nil {
		err = verify()
		if errorKind(err) == KindTokenInvalid {
			a.Failed(addr)
		}
	}
	return err
}

// HandshakeFailed counts a failed TLS handshake as a failed attempt, unless the client
// ended it: a client that does not trust this server has not tried to authenticate.
// again is whether the address had failed too often before.
func (a *Attempts) HandshakeFailed(from net.Addr, err error) (again bool) {
	if ended, ok := errors.AsType[*net.OpError](err); ok && ended.Op == "remote error" {
		return false
	}
	addr := addrOf(from)
	again = a.Check(addr) != nil
	a.Failed(addr)
	return again
}

// addrOf returns the address of a TCP peer, and the zero Addr for others.
func addrOf(addr net.Addr) netip.Addr {
	if tcp, ok := addr.(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr()
	}
	return netip.Addr{}
}

// isFailedAttempt reports whether an authentication error is due to wrong
// credentials, rather than missing ones or missing permissions.
func isFailedAttempt(err error) bool {
	return slices.Contains([]Kind{
		KindHeaderInvalid, KindTokenInvalid, KindTokenExpired, KindTokenNotYetValid, KindIssuerMismatch,
		KindAudienceMismatch, KindNotListed, KindCredentialsDisagree, KindCertificateExpired,
	}, errorKind(err))
}

func (a *Attempts) forget(element *list.Element) {
	delete(a.byAddr, element.Value.(*failures).addr)
	a.recent.Remove(element)
}

// prefixOf returns the prefix by which addr is counted.
func prefixOf(addr netip.Addr) netip.Prefix {
	addr = addr.Unmap().WithZone("")
	bits := addr.BitLen()
	if addr.Is6() {
		bits = ipv6Bits
	}
	prefix, _ := addr.Prefix(bits) // fails only for invalid lengths
	return prefix
}
