package auth

import (
	"crypto/x509"
	"errors"
	"strings"
)

// Credentials are what a caller presented, and what its listener knows about it.
// The zero value is a caller without any credential.
type Credentials struct {
	// Token is the bearer token; empty if none. See [ParseAuthorization].
	Token string
	// Certificates is the caller's verified certificate chain, its own first.
	Certificates []*x509.Certificate
	// Identities are who an OpenID provider says that the caller is, each as in
	// oidc_identities of a table. They alone decide; nil if no provider was asked.
	Identities []string
	// Peer is the process at the other end of a unix socket, else nil.
	Peer *Peer
	// Loopback is whether the caller came by an unauthenticated TCP listener that
	// is reachable only from this host.
	Loopback bool
	// PeerRefused is why the caller is not accepted by Peer or Loopback, an
	// *[Error] of kind [KindPeerRefused]; nil if it is.
	PeerRefused error
	// InProcess is whether the caller is the program that embeds the server.
	InProcess bool
	// Known is the principal that was authenticated at the start of the
	// connection, on which no further credentials are presented. Only its current
	// permissions are looked up. The zero Principal if the caller is identified
	// by the fields above.
	Known Principal
	// OnBehalfOf is the name that the caller impersonates; empty if none.
	OnBehalfOf string
}

// Caller is an authenticated caller with its permissions. The zero value is
// nobody, without permissions.
type Caller struct {
	// Principal is who the call is made as; it determines the visible sessions.
	Principal Principal
	// Via is who impersonates Principal; nobody if there is no impersonation.
	Via Principal
	// May is the set of permissions.
	May Permissions
	// RunAs is as whom the caller may start processes.
	RunAs RunAs
	// Record is whether the terminals of processes that the caller starts are recorded.
	Record bool
}

// Self returns who makes the call itself: Via, or Principal without
// impersonation.
func (c Caller) Self() Principal {
	if !c.Via.IsZero() {
		return c.Via
	}
	return c.Principal
}

// Unrestricted returns p as a caller with all permissions, also to start processes as
// anybody. [Relay] and [Websocket], whose callers may be on other hosts, have [Admin] only
// by a table.
func Unrestricted(p Principal) Caller {
	if p == Relay || p == Websocket {
		return Caller{Principal: p, May: All, RunAs: Anybody}
	}
	return Caller{Principal: p, May: Everything, RunAs: Anybody}
}

const bearer = "bearer"

// ParseAuthorization returns the token of an Authorization header of the form
// "Bearer TOKEN"; the case of the scheme does not matter. values are all values
// of the header. Without a value the token is empty. The error is an *[Error] of
// kind [KindHeaderInvalid]; it does not repeat the header.
func ParseAuthorization(values []string) (token string, err error) {
	switch {
	case len(values) == 0:
		return "", nil
	case len(values) > 1:
		return "", headerInvalid("it was sent more than once")
	}
	scheme, token, found := strings.Cut(values[0], " ")
	token = strings.Trim(token, " ")
	switch {
	case !found || !strings.EqualFold(scheme, bearer):
		return "", headerInvalid("it is not of the form \"Bearer TOKEN\"")
	case token == "" || strings.ContainsFunc(token, notTokenChar):
		return "", headerInvalid("what follows Bearer is not a token")
	}
	return token, nil
}

// notTokenChar reports whether r is not a b64token character of RFC 6750.
func notTokenChar(r rune) bool {
	switch {
	case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
		return false
	}
	return !strings.ContainsRune("-._~+/=", r)
}

func headerInvalid(problem string) error {
	return &Error{Kind: KindHeaderInvalid, Subject: "authorization header", Err: errors.New(problem)}
}
