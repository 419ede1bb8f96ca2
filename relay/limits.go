package relay

import (
	"fmt"
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

// messageOverhead is what a message in a queue counts beside its bytes, so that
// many small ones are bounded too.
const messageOverhead = 64

// Role is which end of its streams an [Endpoint] is.
type Role int

const (
	// Executor accepts streams: they begin with the first message of the peer.
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

// Config has the limits of an [Endpoint]. The zero value is an executor with the
// defaults; 0 in a field is its default.
type Config struct {
	// Role is which end this is.
	Role Role
	// SegmentBytes is the largest payload of a frame to a peer that
	// acknowledges; larger messages take several. At most WindowBytes. The
	// default leaves room for what precedes it in buffers of 64 KiB.
	SegmentBytes int
	// WindowFrames is how many segments of a stream may be sent and not be
	// acknowledged, 32 at most: an acknowledgement can tell of no more.
	WindowFrames int
	// WindowBytes bounds the same segments in bytes, and those that are received
	// out of order or wait for room in the queue.
	WindowBytes int
	// MessageBytes is the largest message. Sending a larger one fails; receiving
	// one ends the stream with [ReasonMessageTooLarge].
	MessageBytes int
	// PlainMessageBytes is the largest message that is sent to a peer that is not
	// known to acknowledge, if that is less than MessageBytes: it is one frame,
	// and one that a rendezvous refuses ends the carrier of all streams.
	PlainMessageBytes int
	// QueueBytes is how much a stream may have received and the application not
	// taken (a message counts 64 bytes more than it has, and the last one may go
	// beyond) before its peer has to wait.
	QueueBytes int
	// PlainQueueBytes is the same for peers that do not acknowledge, and so
	// cannot be made to wait: their stream ends with [ReasonReceiveOverflow].
	PlainQueueBytes int
	// LargeBytes bounds what all streams together have received beyond
	// QueueBytes each: large messages, and queues of plain peers. A stream that
	// needs more in the middle of a message ends with [ReasonReceiveOverflow].
	LargeBytes int
	// Streams is how many streams there may be at a time. One counts until it
	// has ended and the application knows: Receive or Send has returned why, or
	// Reset was called. An executor refuses more with [ReasonStreamLimit]; there
	// as many again may have ended and count no more.
	Streams int
	// SilenceTimeout is how long a peer that acknowledges may send nothing at
	// all before its stream ends with [ReasonPeerSilent], whether there is a
	// carrier or not.
	SilenceTimeout time.Duration
	// HeartbeatInterval is how long a stream sends nothing before it sends a
	// sign of life. At most half of SilenceTimeout.
	HeartbeatInterval time.Duration
	// ProbeTimeout is how long a peer has to show that it acknowledges before it
	// is taken for one that does not. At most SilenceTimeout.
	ProbeTimeout time.Duration
	// Logger gets warnings about frames that are dropped, at most one each
	// second. nil is slog.Default().
	Logger *slog.Logger

	// first is the number of the first segment of every stream, in both
	// directions. Only tests begin elsewhere than at 0.
	first uint32
}

// ConfigError is a setting outside its range.
type ConfigError struct {
	Name  string // the field of [Config]
	Value any    // what it was
	Fix   string // what it may be
}

func (e *ConfigError) Error() string {
	return fmt.Sprintf("relay setting %s is %v: it must be %s", e.Name, e.Value, e.Fix)
}

// withDefaults returns c with its zeros replaced, or a *[ConfigError].
func (c Config) withDefaults() (Config, error) {
	for _, n := range []struct {
		name      string
		value     *int
		standard  int
		low, high int
	}{
		{"SegmentBytes", &c.SegmentBytes, DefaultSegmentBytes, 1, 16 << 20},
		{"WindowFrames", &c.WindowFrames, DefaultWindowFrames, 1, ackedBits},
		{"WindowBytes", &c.WindowBytes, DefaultWindowBytes, 1, 1 << 30},
		{"MessageBytes", &c.MessageBytes, DefaultMessageBytes, 1, 1 << 30},
		{"PlainMessageBytes", &c.PlainMessageBytes, DefaultPlainMessageBytes, 1, 1 << 30},
		{"QueueBytes", &c.QueueBytes, DefaultQueueBytes, 1, 1 << 30},
		{"PlainQueueBytes", &c.PlainQueueBytes, DefaultPlainQueueBytes, 1, 1 << 30},
		{"LargeBytes", &c.LargeBytes, DefaultLargeBytes, 1, 1 << 40},
		{"Streams", &c.Streams, DefaultStreams, 1, 1 << 20},
	} {
		if *n.value == 0 {
			*n.value = n.standard
		}
		if *n.value < n.low || *n.value > n.high {
			return c, &ConfigError{n.name, *n.value, fmt.Sprintf("between %d and %d, or 0 for %d", n.low, n.high, n.standard)}
		}
	}
	for _, d := range []struct {
		name     string
		value    *time.Duration
		standard time.Duration
	}{
		{"SilenceTimeout", &c.SilenceTimeout, DefaultSilenceTimeout},
		{"HeartbeatInterval", &c.HeartbeatInterval, DefaultHeartbeatInterval},
		{"ProbeTimeout", &c.ProbeTimeout, DefaultProbeTimeout},
	} {
		if *d.value == 0 {
			*d.value = d.standard
		}
		if *d.value < time.Millisecond {
			return c, &ConfigError{d.name, *d.value, fmt.Sprintf("1ms or more, or 0 for %v", d.standard)}
		}
	}
	switch {
	case c.Role != Executor && c.Role != Harness:
		return c, &ConfigError{"Role", int(c.Role), "Executor or Harness"}
	case c.SegmentBytes > c.WindowBytes:
		return c, &ConfigError{"SegmentBytes", c.SegmentBytes, fmt.Sprintf("WindowBytes (%d) at most", c.WindowBytes)}
	case c.ProbeTimeout > c.SilenceTimeout:
		return c, &ConfigError{"ProbeTimeout", c.ProbeTimeout, fmt.Sprintf("SilenceTimeout (%v) at most", c.SilenceTimeout)}
	case c.HeartbeatInterval > c.SilenceTimeout/2:
		return c, &ConfigError{"HeartbeatInterval", c.HeartbeatInterval, fmt.Sprintf("half of SilenceTimeout (%v) at most", c.SilenceTimeout)}
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c, nil
}
