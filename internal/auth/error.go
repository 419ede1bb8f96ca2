package auth

import "fmt"

// Kind says what an [Error] is about. The list is closed.
type Kind int

const (
	// KindNoPrincipal means that a call has no principal.
	KindNoPrincipal Kind = iota + 1
	// KindPeerUnknown means that the kernel did not say who the peer is.
	KindPeerUnknown
)

// String returns the kind in words.
func (k Kind) String() string {
	switch k {
	case KindNoPrincipal:
		return "no principal"
	case KindPeerUnknown:
		return "peer unknown"
	default:
		return fmt.Sprintf("kind %d", int(k))
	}
}

// Error is why a caller could not be identified. It holds no secret.
type Error struct {
	Kind    Kind   // what it is about
	Subject string // what was to be identified
	Err     error  // the reason; never nil
}

func (e *Error) Error() string {
	return fmt.Sprintf("failed to identify the %s: %v", e.Subject, e.Err)
}

// Unwrap returns the reason.
func (e *Error) Unwrap() error { return e.Err }
