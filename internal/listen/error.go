package listen

import "fmt"

// Kind is the kind of an [Error].
type Kind int

const (
	// KindMalformed means that the URL is malformed.
	KindMalformed Kind = iota + 1
	// KindNotLoopback means that the address is reachable from other hosts.
	KindNotLoopback
	// KindUnauthenticated means that the address is reachable from other hosts,
	// without authentication.
	KindUnauthenticated
	// KindNoCertificate means that a listener with TLS has no certificate.
	KindNoCertificate
	// KindTooLong means that the path does not fit into a socket address.
	KindTooLong
	// KindOff means that the URL asks for no listener.
	KindOff
	// KindInUse means that another server listens there.
	KindInUse
	// KindPathOccupied means that the path exists and is not a dead socket.
	KindPathOccupied
	// KindSystem means that a system call failed; the error wraps its reason.
	KindSystem
)

// String returns the name of the kind.
func (k Kind) String() string {
	names := [...]string{
		KindMalformed: "malformed", KindNotLoopback: "not loopback",
		KindUnauthenticated: "unauthenticated", KindNoCertificate: "no certificate",
		KindTooLong: "too long", KindOff: "off", KindInUse: "in use", KindPathOccupied: "path occupied", KindSystem: "system",
	}
	if k <= 0 || int(k) >= len(names) {
		return fmt.Sprintf("kind %d", int(k))
	}
	return names[k]
}

// Error is why a listener could not be opened. Its text names the URL, the
// problem and the fix.
type Error struct {
	Kind    Kind   // what went wrong
	URL     string // as it was given
	Problem string // what is wrong
	Fix     string // may be empty
	Err     error  // the error of the system; may be nil
}

func (e *Error) Error() string {
	text := fmt.Sprintf("failed to listen on %q: %s", e.URL, e.Problem)
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	if e.Fix != "" {
		text += "; " + e.Fix
	}
	return text
}

// Unwrap returns the error of the system.
func (e *Error) Unwrap() error { return e.Err }
