package relay

import (
	"cmp"
	"log/slog"
	"time"
)

// Defaults of [Config].
const (
	DefaultSegmentBytes      = 62 << 10
	DefaultWindowFrames      = 32
	DefaultWindowBytes       = 2 << 20
	DefaultMessageBytes      = 64 << 20
	DefaultPlainMessageBytes = 16<<20 - 4<<10
	DefaultQueueBytes        = 2 << 20
	DefaultPlainQueueBytes   = 16 << 20
	DefaultLargeBytes        = 256 << 20
	DefaultStreams           = 1024
	DefaultSilenceTimeout    = 30 * time.Second
	DefaultHeartbeatInterval = 10 * time.Second
	DefaultProbeTimeout      = 10 * time.Second
)

// messageOverhead is added to the size of each queued message, so that many small
// ones are bounded too.
const messageOverhead = 64

// Role is the end of its streams that an [Endpoint] is.
type Role int

const (
	// Executor accepts streams. They begin with the first message of the peer.
	Executor Role = iota
	// Harness opens streams.
	Harness
)

// String returns "executor" or "harness".
func (r Role) String() string {
	if r == Harness {
		return "harness"
	}
	return "executor"
}

// Config has the settings of an [Endpoint]. The zero value is an executor with
// the defaults; a zero field means its default. Other values must be positive and
// within the stated bounds, which are not checked.
type Config struct {
	// Role is the role of the endpoint.
	Role Role
	// SegmentBytes is the maximum payload of a frame to a peer that acknowledges;
	// larger messages take several frames. At most WindowBytes. With the default
	// a frame fits into the 64 KiB that a hub reserves for each end of a stream.
	SegmentBytes int
	// WindowFrames is how many unacknowledged segments a stream may have, at most
	// 32, which is what an acknowledgement covers.
	WindowFrames int
	// WindowBytes bounds the same segments in bytes, and received segments that
	// are out of order or wait for queue space.
	WindowBytes int
	// MessageBytes is the maximum size of a message. Sending a larger one fails;
	// receiving one ends the stream with [ReasonMessageTooLarge].
	MessageBytes int
	// PlainMessageBytes is the maximum size of a message to a peer that is not
	// known to acknowledge, if that is less than MessageBytes. Such a message is
	// a single frame, and a frame that a rendezvous rejects ends the carrier of
	// all streams.
	PlainMessageBytes int
	// QueueBytes is how many received bytes a stream may queue for the
	// application before the peer has to wait. Each message counts 64 bytes
	// extra; the last one may exceed the limit.
	QueueBytes int
	// PlainQueueBytes is the same for peers that do not acknowledge. They cannot
	// be made to wait: beyond it the stream ends with [ReasonReceiveOverflow].
	PlainQueueBytes int
	// LargeBytes bounds what all streams together have received beyond QueueBytes
	// each: large messages, and queues of plain peers. A stream that needs more
	// in the middle of a message ends with [ReasonReceiveOverflow].
	LargeBytes int
	// Streams is how many streams there may be at a time. A stream counts until
	// it has ended and the application knows: Receive or Send has returned the
	// reason, or Reset was called. An executor rejects more with
	// [ReasonStreamLimit], and tolerates as many ended streams whose end is not
	// yet known.
	Streams int
	// SilenceTimeout is how long a peer that acknowledges may be silent before
	// its stream ends with [ReasonPeerSilent], with or without a carrier.
	SilenceTimeout time.Duration
	// HeartbeatInterval is how long a stream may be idle before it sends a
	// heartbeat. At most half of SilenceTimeout.
	HeartbeatInterval time.Duration
	// ProbeTimeout is how long a peer has to show that it acknowledges before it
	// counts as plain. At most SilenceTimeout.
	ProbeTimeout time.Duration
	// Logger gets warnings about dropped frames, at most one per second. nil
	// means slog.Default().
	Logger *slog.Logger

	// first is the number of the first segment of every stream, in both
	// directions. Only tests change it from 0.
	first uint32
}

// withDefaults returns c with zero fields replaced.
func (c Config) withDefaults() Config {
	c.SegmentBytes = cmp.Or(c.SegmentBytes, DefaultSegmentBytes)
	c.WindowFrames = cmp.Or(c.WindowFrames, DefaultWindowFrames)
	c.WindowBytes = cmp.Or(c.WindowBytes, DefaultWindowBytes)
	c.MessageBytes = cmp.Or(c.MessageBytes, DefaultMessageBytes)
	c.PlainMessageBytes = cmp.Or(c.PlainMessageBytes, DefaultPlainMessageBytes)
	c.QueueBytes = cmp.Or(c.QueueBytes, DefaultQueueBytes)
	c.PlainQueueBytes = cmp.Or(c.PlainQueueBytes, DefaultPlainQueueBytes)
	c.LargeBytes = cmp.Or(c.LargeBytes, DefaultLargeBytes)
	c.Streams = cmp.Or(c.Streams, DefaultStreams)
	c.SilenceTimeout = cmp.Or(c.SilenceTimeout, DefaultSilenceTimeout)
	c.HeartbeatInterval = cmp.Or(c.HeartbeatInterval, DefaultHeartbeatInterval)
	c.ProbeTimeout = cmp.Or(c.ProbeTimeout, DefaultProbeTimeout)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return c
}
