package httpclient

import (
	"fmt"
	"net/netip"
	"strings"
)

// Kind tells errors apart for those who map them.
type Kind uint8

// The kinds of errors. There is no zero kind.
const (
	InvalidRequest  Kind = iota + 1 // Error.Field of the request is malformed
	AddressRefused                  // Error.Address must not be reached from here
	Failed                          // no response came: it could not be connected, or did not speak HTTP
	TimedOut                        // Request.Timeout was over
	HeadTooLarge                    // the heads of the response exceed Error.Limit bytes
	BodyFailed                      // the body ended before its end
	TooManyRequests                 // the owner has Error.Limit requests already
)

var kindNames = map[Kind]string{
	InvalidRequest:  "invalid request",
	AddressRefused:  "address refused",
	Failed:          "failed",
	TimedOut:        "timed out",
	HeadTooLarge:    "head too large",
	BodyFailed:      "body failed",
	TooManyRequests: "too many requests",
}

// Kinds returns every kind, so that a table that maps them can be checked for
// completeness.
func Kinds() []Kind {
	kinds := make([]Kind, 0, len(kindNames))
	for k := InvalidRequest; k <= TooManyRequests; k++ {
		kinds = append(kinds, k)
	}
	return kinds
}

func (k Kind) String() string {
	if name, ok := kindNames[k]; ok {
		return name
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Error is what every failure of this package is but the end of the caller's
// context.
type Error struct {
	// Kind is what went wrong.
	Kind Kind
	// Field is the field of the request that is malformed, as "headers[1].name".
	Field string
	// URL is where the request went that failed, without user and password, and
	// without what is beyond 1 KiB; after redirects it is not the one that was asked
	// for.
	URL string
	// Address is the one that was refused.
	Address netip.Addr
	// Limit is the bound that was reached, in bytes or requests.
	Limit int
	// Err says more. It may be nil.
	Err error
}

// Error implements error.
func (e *Error) Error() string {
	var b strings.Builder
	switch e.Kind {
	case InvalidRequest:
		b.WriteString(e.Field)
		if e.Err != nil {
			b.WriteString(" " + e.Cause())
		}
		return b.String()
	case AddressRefused:
		fmt.Fprintf(&b, "%s is refused", e.Address)
	case TimedOut:
		b.WriteString("the time for the request is over")
	case HeadTooLarge:
		fmt.Fprintf(&b, "the head of the response is larger than %d bytes", e.Limit)
	case BodyFailed:
		b.WriteString("the body of the response could not be read to its end")
	case TooManyRequests:
		fmt.Fprintf(&b, "%d requests are under way already: wait until one has ended", e.Limit)
	default:
		b.WriteString("the request failed")
	}
	if e.URL != "" {
		b.WriteString(" (" + e.URL + ")")
	}
	if e.Err != nil {
		b.WriteString(": " + e.Cause())
	}
	return b.String()
}

// Cause is what Err says, without what is beyond 1 KiB: servers elsewhere have a
// say in it. It is empty if there is none.
func (e *Error) Cause() string {
	if e.Err == nil {
		return ""
	}
	return shorten(e.Err.Error())
}

// maxTold is the most that an error says of what others have said, in bytes. Errors
// travel where little has room: in the headers of gRPC.
const maxTold = 1 << 10

func shorten(text string) string {
	if len(text) <= maxTold {
		return text
	}
	return strings.ToValidUTF8(text[:maxTold], "") + "…"
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }
