package ports

import (
	"fmt"
	"net/netip"
)

// Kind is the kind of an [Error].
type Kind uint8

// Kinds of errors. There is no zero kind.
const (
	Denied             Kind = iota + 1 // the address and port must not be connected to
	ConnectionRefused                  // nothing listens there
	TimedOut                           // no connection within Options.Timeout
	Unreachable                        // the host or its address cannot be found or reached
	ConnectionReset                    // an established connection broke
	TooManyConnections                 // the owner already has Error.Limit connections
	ListenDenied                       // the address and port must not be listened on
	InUse                              // something else listens there
	AddressUnavailable                 // this host does not have the address
	ListenFailed                       // the system cannot listen
	TooManyListeners                   // the owner already has Error.Limit listeners
	ConnectionNotFound                 // no connection with the id waits to be accepted
	TakenOver                          // another listener took over

	KindEnd // one after the last, for checks that a mapping is complete
)

// Error is any failure to connect, to listen, or of a connection, except the end of the caller's
// context.
type Error struct {
	// Kind is what went wrong.
	Kind Kind
	// Target is the host and port that the caller named, the peer of an accepted connection, or the
	// id of one.
	Target string
	// Address is the address that was tried last; invalid if there was none.
	Address netip.AddrPort
	// Limit is the exceeded limit.
	Limit int
	// Err is the cause. It may be nil.
	Err error
}

// Error implements error.
func (e *Error) Error() string {
	var text string
	switch e.Kind {
	case Denied:
		text = "connections to " + e.Target + " are denied"
	case ConnectionRefused:
		text = e.Target + " refuses connections: nothing listens there"
	case TimedOut:
		text = "the connection to " + e.Target + " timed out"
	case ConnectionReset:
		text = "the connection with " + e.Target + " was reset"
	case TooManyConnections:
		return fmt.Sprintf("%d connections to ports are already open: close one first", e.Limit)
	case ListenDenied:
		text = "listening on " + e.Target + " is denied"
	case InUse:
		return e.Target + " is in use"
	case AddressUnavailable:
		text = e.Target + " is no address of the server's machine"
	case ListenFailed:
		text = "cannot listen on " + e.Target
	case TooManyListeners:
		return fmt.Sprintf("%d ports are already listened on: close one first", e.Limit)
	case ConnectionNotFound:
		return "no connection " + e.Target + " waits to be accepted: it was accepted or reset"
	case TakenOver:
		return "another call listens in place of this one"
	default:
		text = e.Target + " cannot be reached"
	}
	if e.Err != nil && e.Kind != ConnectionRefused {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }
