// Package auth turns a credential into a [Principal]: who a caller is. It knows
// no RPC; whoever owns a door finds the principal and carries it in the context
// to where ownership and permission are decided.
//
// The zero Principal is nobody, and nobody is never let in: code that asks a
// context for its principal gets an error rather than a default.
package auth

import (
	"context"
	"errors"
)

// Principal is who a caller is. Two principals are the same caller if and only
// if they are equal; sessions and their processes belong to one. The zero value
// is nobody.
type Principal struct {
	// Name is unique among all callers, whatever they showed for it: kinds of
	// callers that could clash have a prefix, as in "uid:1000".
	Name string
}

// Principals that need no credential.
var (
	// Loopback is everybody who reaches an unauthenticated TCP listener on
	// this host. The kernel does not say who that is, so they are all one.
	Loopback = Principal{Name: "loopback"}
	// InProcess is the program that contains the server.
	InProcess = Principal{Name: "in-process"}
	// Relay is everybody who reaches this server through the relay that it is an
	// executor of: the rendezvous has let them in, and does not say who they are.
	// A table of principals may list it by its name and say what it may do; if it
	// does not, it may do everything.
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

// FromContext returns who makes the calls of ctx. If nobody does, it returns an
// *[Error] of kind [KindNoPrincipal].
func FromContext(ctx context.Context) (Principal, error) {
	p, _ := ctx.Value(principalKey{}).(Principal)
	if p.IsZero() {
		return Principal{}, &Error{Kind: KindNoPrincipal, Subject: "call", Err: errNoPrincipal}
	}
	return p, nil
}

var errNoPrincipal = errors.New("no principal in its context: it did not come through an authenticating door")
