package auth

import (
	"fmt"
	"time"
)

// Kind is the kind of an [Error].
type Kind int

const (
	// KindNoPrincipal means that a call has no principal.
	KindNoPrincipal Kind = iota + 1
	// KindPeerUnknown means that the kernel did not identify the peer.
	KindPeerUnknown
	// KindCredentialMissing means that the caller presented no credential.
	KindCredentialMissing
	// KindHeaderInvalid means that the authorization header is malformed.
	KindHeaderInvalid
	// KindTokenInvalid means that a token is not accepted.
	KindTokenInvalid
	// KindTokenExpired means that a signed token has expired.
	KindTokenExpired
	// KindTokenNotYetValid means that a signed token is not valid yet.
	KindTokenNotYetValid
	// KindIssuerMismatch means that a signed token is from another issuer.
	KindIssuerMismatch
	// KindAudienceMismatch means that a signed token is for another audience.
	KindAudienceMismatch
	// KindNotListed means that a credential is genuine but not in the table of
	// principals.
	KindNotListed
	// KindCredentialsDisagree means that credentials belong to different
	// principals.
	KindCredentialsDisagree
	// KindCertificateExpired means that a certificate has expired or is not valid
	// yet.
	KindCertificateExpired
	// KindOnBehalfOfRefused means that the caller may not impersonate the named
	// principal.
	KindOnBehalfOfRefused
	// KindPeerRefused means that a process of this host is not accepted without a
	// credential.
	KindPeerRefused
	// KindTooManyAttempts means that too many attempts from an address failed.
	KindTooManyAttempts
	// KindTooManyConnections means that the listener has no connection left for
	// the authenticated caller.
	KindTooManyConnections

	KindEnd // one after the last, for checks that a mapping is complete
)

var kindNames = [...]string{
	KindNoPrincipal: "no principal", KindPeerUnknown: "peer unknown", KindCredentialMissing: "credential missing",
	KindHeaderInvalid: "header invalid", KindTokenInvalid: "token invalid", KindTokenExpired: "token expired",
	KindTokenNotYetValid: "token not yet valid", KindIssuerMismatch: "issuer mismatch", KindAudienceMismatch: "audience mismatch",
	KindNotListed: "not listed", KindCredentialsDisagree: "credentials disagree", KindCertificateExpired: "certificate expired",
	KindOnBehalfOfRefused: "on behalf of refused", KindTooManyAttempts: "too many attempts", KindPeerRefused: "peer refused",
	KindTooManyConnections: "too many connections",
}

// String returns the name of the kind.
func (k Kind) String() string {
	if k <= 0 || int(k) >= len(kindNames) {
		return fmt.Sprintf("kind %d", int(k))
	}
	return kindNames[k]
}

// Error is why authentication failed. It contains no secret, but more than the
// caller should learn.
type Error struct {
	Kind    Kind   // what went wrong
	Subject string // what was to be identified
	Err     error  // the cause; never nil
	// ForCaller is the message for the caller, for [KindPeerRefused],
	// [KindTooManyConnections] and what comes from an OpenID provider: it names the
	// user or the limit, the setting and the fix.
	ForCaller string
	// Setting is the name of the limit, for [KindTooManyConnections], and Limit
	// its value.
	Setting string
	Limit   int
	// RetryAfter is when to retry, for [KindTooManyAttempts] and
	// [KindTooManyConnections].
	RetryAfter time.Duration
}

func (e *Error) Error() string {
	return fmt.Sprintf("failed to identify the %s: %v", e.Subject, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }
