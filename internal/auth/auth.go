// Package auth maps credentials to a [Principal] and its permissions. It knows no
// RPC: listeners and servers authenticate a caller and carry the principal in the
// context to where ownership and permissions are checked.
//
// The zero Principal is nobody and is never accepted: a context without a
// principal is an error, not a default.
package auth

import (
	"context"
	"errors"
)

// Principal identifies a caller. Principals are the same caller if and only if
// they are equal; sessions and their processes belong to one. The zero value is
// nobody.
type Principal struct {
	// Name is unique among all callers, whatever their credential: kinds of
	// callers that could clash have a prefix, as in "uid:1000".
	Name string
}

// Principals without credentials.
var (
	// Loopback is everybody who reaches an unauthenticated TCP listener on this
	// host.
	Loopback = Principal{Name: "loopback"}
	// InProcess is the program that embeds the server.
	InProcess = Principal{Name: "in-process"}
	// Relay is everybody who reaches this server through the relay: the
	// rendezvous has authenticated them, but does not identify them. A table of
	// principals may list it to restrict its permissions; otherwise it has all.
	Relay = Principal{Name: "relay"}
)

// String returns the name, or "nobody".
func (p Principal) String() string {
	if p.IsZero() {
		return "nobody"
	}
	return p.Name
}

// IsZero reports whether p is nobody.
func (p Principal) IsZero() bool { return p == Principal{} }

type principalKey struct{}

// WithPrincipal returns a context whose calls are made by p.
func WithPrincipal(ctx context.Context, p Principal) context.Context {
	return context.WithValue(ctx, principalKey{}, p)
}

// FromContext returns the principal of ctx. Without one it returns an *[Error] of
// kind [KindNoPrincipal].
func FromContext(ctx context.Context) (Principal, error) {
	p, _ := ctx.Value(principalKey{}).(Principal)
	if p.IsZero() {
		return Principal{}, &Error{Kind: KindNoPrincipal, Subject: "call", Err: errNoPrincipal}
	}
	return p, nil
}

var errNoPrincipal = errors.New("no principal in the context: the call was not authenticated")
