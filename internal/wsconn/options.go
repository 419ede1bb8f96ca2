package wsconn

import (
	"fmt"
	"time"
)

// Defaults of [Options] and [DialOptions].
const (
	DefaultFrameBytes   = 16 << 20
	DefaultMessageBytes = 64 << 20
	DefaultPingInterval = 30 * time.Second
	DefaultDeadAfter    = 40 * time.Second
	DefaultCloseTimeout = 5 * time.Second
	DefaultLabel        = "websocket"
)

// Options are those of one connection. The zero value has the default limits
// and no pings.
type Options struct {
	// Binary is for peers that speak binary messages: what is sent is binary, and
	// a text message is thrown away while it comes, and received as nil. false
	// is text: what is sent is text, and both kinds are received alike.
	Binary bool
	// FrameBytes is the largest payload of one frame that is received. 0 is
	// DefaultFrameBytes.
	FrameBytes int64
	// MessageBytes is the largest message that is received, over all its
	// frames. 0 is DefaultMessageBytes.
	MessageBytes int64
	// Budget bounds what the messages that are being received take on all
	// connections that have it, so that many large ones that come slowly do not
	// add up. nil is no bound.
	Budget *Budget
	// Principal is for whom Budget counts what is received.
	Principal string
	// PingInterval is the time between pings, of which one is unanswered at
	// most. They keep what lies between the peers from forgetting the
	// connection. 0 is none; DefaultPingInterval is usual.
	PingInterval time.Duration
	// DeadAfter is how long a peer's kernel may acknowledge nothing of what it
	// is sent before the connection counts as lost. A peer that does not read
	// acknowledges all the same. 0 waits for the kernel to give up, which takes
	// it minutes; DefaultDeadAfter is usual.
	DeadAfter time.Duration
	// CloseTimeout bounds each of the two parts of Close: sending what is left,
	// and waiting for the peer to end its side. 0 is DefaultCloseTimeout.
	CloseTimeout time.Duration
	// Label is what Peer puts before the address. Empty is DefaultLabel.
	Label string
}

// OptionsError is a setting outside its range.
type OptionsError struct {
	Name  string // the field of [Options]
	Value any    // what it was
	Fix   string // what it may be
}

func (e *OptionsError) Error() string {
	return fmt.Sprintf("websocket option %s is %v: it must be %s", e.Name, e.Value, e.Fix)
}

// withDefaults returns o with its zeros replaced, or an *[OptionsError].
func (o Options) withDefaults() (Options, error) {
	o.FrameBytes = orDefault(o.FrameBytes, DefaultFrameBytes)
	o.MessageBytes = orDefault(o.MessageBytes, DefaultMessageBytes)
	o.CloseTimeout = orDefault(o.CloseTimeout, DefaultCloseTimeout)
	if o.Label == "" {
		o.Label = DefaultLabel
	}
	for _, bytes := range []struct {
		name  string
		value int64
	}{{"FrameBytes", o.FrameBytes}, {"MessageBytes", o.MessageBytes}} {
		if bytes.value < 1 {
			return Options{}, &OptionsError{Name: bytes.name, Value: bytes.value, Fix: "a number of bytes, or 0 for the default"}
		}
	}
	for _, wait := range []struct {
		name  string
		value time.Duration
	}{{"PingInterval", o.PingInterval}, {"DeadAfter", o.DeadAfter}, {"CloseTimeout", o.CloseTimeout}} {
		if wait.value < 0 {
			return Options{}, &OptionsError{Name: wait.name, Value: wait.value, Fix: "0 or more"}
		}
	}
	return o, nil
}

func orDefault[T comparable](value, standard T) T {
	var zero T
	if value == zero {
		return standard
	}
	return value
}
