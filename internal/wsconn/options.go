package wsconn

import (
	"cmp"
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

// Options configure a connection. The zero value has the default limits and no
// pings.
type Options struct {
	// Binary is for peers with binary messages: sent messages are binary, and a
	// received text message is discarded while it arrives and returned as nil. If
	// false, sent messages are text, and both kinds are received alike.
	Binary bool
	// FrameBytes is the maximum payload of a received frame. 0 is
	// DefaultFrameBytes.
	FrameBytes int64
	// MessageBytes is the maximum size of a received message, over all its
	// frames. 0 is DefaultMessageBytes.
	MessageBytes int64
	// Budget bounds the memory of messages that are being received, over all
	// connections that share it. nil means no bound.
	Budget *Budget
	// Principal is whose share of Budget received messages count against.
	Principal string
	// PingInterval is the interval between pings, of which at most one is
	// unanswered. They keep middleboxes from dropping the connection. 0 means
	// none; DefaultPingInterval is usual.
	PingInterval time.Duration
	// DeadAfter is how long the peer's kernel may acknowledge nothing that it was
	// sent before the connection counts as lost. The kernel of a peer that does
	// not read still acknowledges. With 0 the kernel decides, which takes
	// minutes; DefaultDeadAfter is usual.
	DeadAfter time.Duration
	// CloseTimeout bounds each of the two phases of Close: sending what is left,
	// and waiting for the peer to close its side. 0 is DefaultCloseTimeout.
	CloseTimeout time.Duration
	// Label precedes the address in Peer. Empty is DefaultLabel.
	Label string
}

// withDefaults returns o with zero fields replaced.
func (o Options) withDefaults() Options {
	o.FrameBytes = cmp.Or(o.FrameBytes, DefaultFrameBytes)
	o.MessageBytes = cmp.Or(o.MessageBytes, DefaultMessageBytes)
	o.CloseTimeout = cmp.Or(o.CloseTimeout, DefaultCloseTimeout)
	o.Label = cmp.Or(o.Label, DefaultLabel)
	return o
}
