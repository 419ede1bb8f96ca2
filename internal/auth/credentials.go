package auth

import (
	"crypto/x509"
	"errors"
	"strings"
)

// Credentials are what a caller showed, and what its door knows about it. The
// zero value is a caller that showed nothing at a door that knows nothing.
type Credentials struct {
	// Token is what followed "Bearer"; empty is none. See
	// [ParseAuthorization].
	Token string
	// Certificates is the chain that the caller proved to hold the key of, its
	// own first. Only a chain that was verified may be given.
	Certificates []*x509.Certificate
	// Peer is the process at the other end of a unix socket, else nil.
	Peer *Peer
	// Loopback is whether the caller came by a TCP listener that only this host
	// reaches and that asks for nothing.
	Loopback bool
	// PeerRefused is why the caller is not accepted by Peer or Loopback, an *[Error]
	// of kind [KindPeerRefused]; nil if it is.
	PeerRefused error
	// InProcess is whether the caller is the program that contains the server.
	InProcess bool
	// Known is who the caller was found to be when its connection began, on which
	// it shows nothing any more. Only what that one may do now is looked up. Nobody
	// is for callers that are found out by the above.
	Known Principal
	// OnBehalfOf names whom the caller acts for; empty is itself.
	OnBehalfOf string
}

// Caller is who makes a call, and what it may do. The zero value is nobody and
// may do nothing.
type Caller struct {
	// Principal is who the call is made by: whose sessions it sees.
	Principal Principal
	// Via is who acts on behalf of Principal; nobody if it acts for itself.
	Via Principal
	// May is what is allowed.
	May Permissions
}

// Self is who makes the call in person: Via, or Principal if it acts for itself.
func (c Caller) Self() Principal {
	if !c.Via.IsZero() {
		return c.Via
	}
	return c.Principal
}

// Unrestricted returns p itself as a caller that may do everything.
func Unrestricted(p Principal) Caller { return Caller{Principal: p, May: Everything} }

const bearer = "bearer"

// ParseAuthorization returns the token of an Authorization header in the form
// "Bearer TOKEN", of which values are all that were sent; the scheme's case does
// not matter. None is the empty token. The error is an *[Error] of kind
// [KindHeaderInvalid]; it does not repeat what was sent.
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
	case token == "" || strings.ContainsFunc(token, notInToken):
		return "", headerInvalid("what follows Bearer is not a token")
	}
	return token, nil
}

// notInToken reports whether r is none of RFC 6750's b64token characters.
func notInToken(r rune) bool {
	switch {
	case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
		return false
	}
	return !strings.ContainsRune("-._~+/=", r)
}

func headerInvalid(problem string) error {
	return &Error{Kind: KindHeaderInvalid, Subject: "authorization header", Err: errors.New(problem)}
}
