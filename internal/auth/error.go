package auth

import (
	"fmt"
	"time"
)

// Kind says what an [Error] is about. The list is closed.
type Kind int

const (
	// KindNoPrincipal means that a call has no principal.
	KindNoPrincipal Kind = iota + 1
	// KindPeerUnknown means that the kernel did not say who the peer is.
	KindPeerUnknown
	// KindCredentialMissing means that the caller showed nothing that would
	// tell who it is.
	KindCredentialMissing
	// KindHeaderInvalid means that the authorization header cannot be read.
	KindHeaderInvalid
	// KindTokenInvalid means that a token is none that is accepted.
	KindTokenInvalid
	// KindTokenExpired means that a signed token was good until it expired.
	KindTokenExpired
	// KindTokenNotYetValid means that a signed token is good only later.
	KindTokenNotYetValid
	// KindIssuerMismatch means that a signed token is from another issuer.
	KindIssuerMismatch
	// KindAudienceMismatch means that a signed token is for another server.
	KindAudienceMismatch
	// KindNotListed means that a credential is genuine and the table of
	// principals does not have it.
	KindNotListed
	// KindCredentialsDisagree means that credentials belong to different
	// principals.
	KindCredentialsDisagree
	// KindCertificateExpired means that a certificate's time is over or has not
	// come.
	KindCertificateExpired
	// KindOnBehalfOfRefused means that the caller may not act for the principal
	// that it named.
	KindOnBehalfOfRefused
	// KindPeerRefused means that a process of this host is not accepted without a
	// credential.
	KindPeerRefused
	// KindTooManyAttempts means that too many attempts of an address failed.
	KindTooManyAttempts
	// KindTooManyConnections means that the caller is known and its connection has no
	// place at the listener.
	KindTooManyConnections
	kindEnd
)

var kindNames = [...]string{
	KindNoPrincipal: "no principal", KindPeerUnknown: "peer unknown", KindCredentialMissing: "credential missing",
	KindHeaderInvalid: "header invalid", KindTokenInvalid: "token invalid", KindTokenExpired: "token expired",
	KindTokenNotYetValid: "token not yet valid", KindIssuerMismatch: "issuer mismatch", KindAudienceMismatch: "audience mismatch",
	KindNotListed: "not listed", KindCredentialsDisagree: "credentials disagree", KindCertificateExpired: "certificate expired",
	KindOnBehalfOfRefused: "on behalf of refused", KindTooManyAttempts: "too many attempts", KindPeerRefused: "peer refused",
	KindTooManyConnections: "too many connections",
}

// Kinds returns every kind there is.
func Kinds() []Kind {
	var kinds []Kind
	for k := KindNoPrincipal; k < kindEnd; k++ {
		kinds = append(kinds, k)
	}
	return kinds
}

// String returns the kind in words.
func (k Kind) String() string {
	if k <= 0 || int(k) >= len(kindNames) {
		return fmt.Sprintf("kind %d", int(k))
	}
	return kindNames[k]
}

// Error is why a caller was not let in. It holds no secret, but says more than
// the caller should be told.
type Error struct {
	Kind    Kind   // what it is about
	Subject string // what was to be identified
	Err     error  // the reason; never nil
	// ForCaller is, of [KindPeerRefused] and [KindTooManyConnections], what the caller
	// is told: it names the user or the limit, the setting and the fix.
	ForCaller string
	// Setting is, of [KindTooManyConnections], the name of the limit, and Limit what
	// it is.
	Setting string
	Limit   int
	// RetryAfter is, of [KindTooManyAttempts] and [KindTooManyConnections], when to try
	// again.
	RetryAfter time.Duration
}

func (e *Error) Error() string {
	return fmt.Sprintf("failed to identify the %s: %v", e.Subject, e.Err)
}

// Unwrap returns the reason.
func (e *Error) Unwrap() error { return e.Err }
