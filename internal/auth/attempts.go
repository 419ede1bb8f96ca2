package auth

import (
	"container/list"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// maxAddresses is how many addresses failed attempts are remembered of. The one
// that failed longest ago is forgotten first.
const maxAddresses = 4096

// ipv6Bits is what of an IPv6 address counts: one host has as many as it likes
// of the rest.
const ipv6Bits = 64

// Attempts bounds how often an address may fail to authenticate. It may be used
// concurrently. Attempts of one address that are under way at the same time are
// all let through if the first of them is.
type Attempts struct {
	most     int
	interval time.Duration
	now      func() time.Time

	mu     sync.Mutex
	recent *list.List // of *failures; the latest at the front
	byAddr map[netip.Prefix]*list.Element
}

// failures are those of one address.
type failures struct {
	addr netip.Prefix
	// forgiven is when the last of them is: each takes one interval.
	forgiven time.Time
}

// NewAttempts returns a bound of most failed attempts at once, which are
// forgiven one by one, each after another interval. Both must be positive. now
// is the clock; nil is time.Now.
func NewAttempts(most int, interval time.Duration, now func() time.Time) *Attempts {
	if now == nil {
		now = time.Now
	}
	return &Attempts{most: most, interval: interval, now: now, recent: list.New(), byAddr: map[netip.Prefix]*list.Element{}}
}

// Check returns an *[Error] of kind [KindTooManyAttempts] if addr has failed too
// often to be looked at: right credentials are refused too, or a flood would
// show which are. The invalid address is never refused.
func (a *Attempts) Check(addr netip.Addr) error {
	if !addr.IsValid() {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	element, ok := a.byAddr[block(addr)]
	if !ok {
		return nil
	}
	left := element.Value.(*failures).forgiven.Sub(a.now())
	if left <= 0 {
		a.forget(element)
		return nil
	}
	wait := left - time.Duration(a.most-1)*a.interval
	if wait <= 0 {
		return nil
	}
	return &Error{Kind: KindTooManyAttempts, Subject: "caller", RetryAfter: wait,
		Err: fmt.Errorf("%d attempts from %v failed; the next is looked at in %v", a.most, block(addr), wait.Round(time.Millisecond))}
}

// Failed counts a failed attempt of addr. The invalid address is not counted.
func (a *Attempts) Failed(addr netip.Addr) {
	if !addr.IsValid() {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	now, key := a.now(), block(addr)
	element, ok := a.byAddr[key]
	if !ok {
		if a.recent.Len() >= maxAddresses {
			a.forget(a.recent.Back())
		}
		element = a.recent.PushFront(&failures{addr: key, forgiven: now})
		a.byAddr[key] = element
	}
	a.recent.MoveToFront(element)
	f := element.Value.(*failures)
	if f.forgiven.Before(now) {
		f.forgiven = now
	}
	// What is under way at once may fail more often than may be; it costs no
	// more than that.
	f.forgiven = f.forgiven.Add(a.interval)
	if most := now.Add(time.Duration(a.most) * a.interval); f.forgiven.After(most) {
		f.forgiven = most
	}
}

// IsFailedAttempt reports whether err, of authenticating, is of somebody who
// showed what is wrong, rather than nothing, or what is right and too little.
func IsFailedAttempt(err error) bool {
	typed, ok := errors.AsType[*Error](err)
	return ok && slices.Contains([]Kind{
		KindHeaderInvalid, KindTokenInvalid, KindTokenExpired, KindTokenNotYetValid, KindIssuerMismatch,
		KindAudienceMismatch, KindNotListed, KindCredentialsDisagree, KindCertificateExpired,
	}, typed.Kind)
}

func (a *Attempts) forget(element *list.Element) {
	delete(a.byAddr, element.Value.(*failures).addr)
	a.recent.Remove(element)
}

// block is what addr counts as.
func block(addr netip.Addr) netip.Prefix {
	addr = addr.Unmap().WithZone("")
	bits := addr.BitLen()
	if addr.Is6() {
		bits = ipv6Bits
	}
	prefix, _ := addr.Prefix(bits) // fails for other numbers of bits only
	return prefix
}
