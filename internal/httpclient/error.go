package httpclient

import (
	"fmt"
	"net/netip"
	"strings"
)

// Kind is the kind of an [Error].
type Kind uint8

// Kinds of errors. There is no zero kind.
const (
	InvalidRequest  Kind = iota + 1 // Error.Field of the request is invalid
	AddressRefused                  // Error.Address must not be connected to
	Failed                          // no response: the connection failed, or the server does not speak HTTP
	TimedOut                        // Request.Timeout expired
	HeadTooLarge                    // the heads of the response exceed Error.Limit bytes
	BodyFailed                      // the body is incomplete
	TooManyRequests                 // the owner already has Error.Limit requests

	KindEnd // one after the last, for checks that a mapping is complete
)

// Error is any failure of this package, except the end of the caller's context.
type Error struct {
	// Kind is what went wrong.
	Kind Kind
	// Field is the invalid field of the request, as "headers[1].name".
	Field string
	// URL is the URL that failed, after redirects, without user and password, and
	// truncated to 1 KiB.
	URL string
	// Address is the rejected address.
	Address netip.Addr
	// Limit is the exceeded limit, in bytes or requests.
	Limit int
	// Err is the cause. It may be nil.
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
		b.WriteString("the request timed out")
	case HeadTooLarge:
		fmt.Fprintf(&b, "the head of the response is larger than %d bytes", e.Limit)
	case BodyFailed:
		b.WriteString("failed to read the whole response body")
	case TooManyRequests:
		fmt.Fprintf(&b, "%d requests are already in progress: wait until one has ended", e.Limit)
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

// Cause returns the text of Err, truncated to 1 KiB, because servers influence
// it. It is empty without a cause.
func (e *Error) Cause() string {
	if e.Err == nil {
		return ""
	}
	return truncate(e.Err.Error())
}

// maxErrorText bounds text from servers in errors, in bytes. gRPC sends errors in
// headers, which are limited.
const maxErrorText = 1 << 10

func truncate(text string) string {
	if len(text) <= maxErrorText {
		return text
	}
	return strings.ToValidUTF8(text[:maxErrorText], "") + "…"
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }
