package listen

import "fmt"

// Kind says what is wrong with a URL or in the way of listening on it. The list
// is closed.
type Kind int

const (
	// KindMalformed means that the URL cannot be read.
	KindMalformed Kind = iota + 1
	// KindNotLoopback means that the address can be reached from beyond this
	// host.
	KindNotLoopback
	// KindUnauthenticated means that the address can be reached from beyond this
	// host, and nothing says who is let in.
	KindUnauthenticated
	// KindNoCertificate means that a door with TLS has no certificate.
	KindNoCertificate
	// KindTooLong means that the path does not fit into a socket address.
	KindTooLong
	// KindOff means that the URL asks for no listener.
	KindOff
	// KindInUse means that another server listens there.
	KindInUse
	// KindInTheWay means that something that is not a dead socket has the path.
	KindInTheWay
	// KindSystem means that the system refused; the error wraps its reason.
	KindSystem
)

// String returns the kind in words.
func (k Kind) String() string {
	names := [...]string{
		KindMalformed: "malformed", KindNotLoopback: "not loopback",
		KindUnauthenticated: "unauthenticated", KindNoCertificate: "no certificate",
		KindTooLong: "too long", KindOff: "off", KindInUse: "in use", KindInTheWay: "in the way", KindSystem: "system",
	}
	if k <= 0 || int(k) >= len(names) {
		return fmt.Sprintf("kind %d", int(k))
	}
	return names[k]
}

// Error is why there is no listener. Its text names the URL, what is wrong and
// what to do about it.
type Error struct {
	Kind    Kind   // which of the list above
	URL     string // as it was given
	Problem string // what is wrong
	Fix     string // what to do; may be empty
	Err     error  // the system's reason; may be nil
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

// Unwrap returns the system's reason.
func (e *Error) Unwrap() error { return e.Err }
