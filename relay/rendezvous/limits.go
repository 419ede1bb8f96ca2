package rendezvous

import (
	"fmt"
	"time"
)

// Defaults of [Limits].
const (
	DefaultFrameBytes            = 16 << 20
	DefaultQueueBytes            = 2<<20 + 64<<10
	DefaultPlainQueueBytes       = 16 << 20
	DefaultConnectionQueueBytes  = 64 << 20
	DefaultTotalQueueBytes       = 1 << 30
	DefaultMinIncomingRate       = 16 << 10
	DefaultConnections           = 1024
	DefaultStreamsPerConnection  = 1024
	DefaultStreamsPerPrincipal   = 4096
	DefaultStreamsPerExecutor    = 4096
	DefaultExecutors             = 10_000
	DefaultExecutorsPerPrincipal = 2048
	DefaultStreamGrace           = 30 * time.Second
	DefaultStreamIdle            = 2 * time.Minute
	DefaultURLLifetime           = 5 * time.Minute
	DefaultRegistrationsPerID    = 8
	DefaultExecutorRetention     = 7 * 24 * time.Hour
	DefaultPresenceInterval      = 15 * time.Second
	presenceIntervalsUntilAbsent = 4
)

// Limits bound what a hub holds and waits for. The zero value has the defaults.
type Limits struct {
	// FrameBytes is the largest frame that is routed. The websocket that sends a
	// larger one is closed with code 1009. Peers that do not segment send whole
	// messages in a frame. 0 is DefaultFrameBytes.
	FrameBytes int64
	// QueueBytes is what may wait for one end of a stream of which both ends
	// retransmit: one window of theirs, and some. A frame counts as
	// [minFrameBytes] at least. What does not fit is dropped, and once nothing
	// has left the queue for StreamGrace the stream is reset. 0 is
	// DefaultQueueBytes.
	QueueBytes int64
	// PlainQueueBytes is the same of a stream that has an end which does not
	// retransmit, and does not wait for a window either. It is reset when
	// something does not fit. 0 is DefaultPlainQueueBytes.
	PlainQueueBytes int64
	// ConnectionQueueBytes is what may wait for one websocket, over all its
	// streams; TotalQueueBytes for all of the hub, of which one principal has at most
	// as much as is free. When it is reached the longest queue of the websocket gives
	// way, as if it were full. 64 KiB for each end of a stream do not count. 0 is
	// DefaultConnectionQueueBytes and DefaultTotalQueueBytes.
	ConnectionQueueBytes, TotalQueueBytes int64
	// MinIncomingRate is the rate in bytes per second below which a large frame that is
	// being received may have to give way to others once such frames take
	// TotalQueueBytes. 0 is DefaultMinIncomingRate.
	MinIncomingRate int64
	// Connections is how many websockets one principal may have, executors' and
	// harnesses' together. Further ones are refused with 429. 0 is
	// DefaultConnections.
	Connections int
	// StreamsPerConnection is how many streams may live that one websocket of a
	// harness has; StreamsPerPrincipal those that all websockets of its principal
	// have, and StreamsPerExecutor those of one executor, which may announce fewer.
	// Further ones are reset with stream_limit; at an executor those of the principal,
	// and the websocket, with the most give way first. 0 is the default of each.
	StreamsPerConnection, StreamsPerPrincipal, StreamsPerExecutor int
	// Executors is how many executors the hub knows, connected or not, and
	// ExecutorsPerPrincipal how many of them one principal has registered. At either
	// the record of an executor that is away gives way to a further one: of the
	// principal itself at its share, of the one with the most at the total. If none
	// is away for long enough the registration is refused with 429. 0 is
	// DefaultExecutors and DefaultExecutorsPerPrincipal.
	Executors, ExecutorsPerPrincipal int
	// StreamGrace is how long an end that retransmits may be away before its
	// streams are reset. 0 is DefaultStreamGrace.
	StreamGrace time.Duration
	// StreamIdle is after how long without a frame a stream is forgotten of which
	// both ends retransmit: they say something every few seconds. 0 is
	// DefaultStreamIdle.
	StreamIdle time.Duration
	// URLLifetime is how long the URL of a registration, or of a request to
	// connect, lets its bearer in. 0 is DefaultURLLifetime.
	URLLifetime time.Duration
	// ExecutorRetention is how long an executor that is not connected is known at
	// least, if its principal has no more of them than one whose executor needs the
	// place. One of a principal that has more, and one that never connected, is for
	// URLLifetime. 0 is DefaultExecutorRetention.
	ExecutorRetention time.Duration
	// PresenceInterval is how often the hub says that a connected executor is
	// there. 0 is DefaultPresenceInterval.
	PresenceInterval time.Duration
}

// LimitsError is a limit outside its range.
type LimitsError struct {
	Name  string // the field of [Limits]
	Value any    // what it was
}

func (e *LimitsError) Error() string {
	return fmt.Sprintf("the limit %s of a rendezvous is %v: it must be positive, or 0 for the default", e.Name, e.Value)
}

// withDefaults returns l with its zeros replaced, or a [*LimitsError].
func (l Limits) withDefaults() (Limits, error) {
	for _, v := range []struct {
		name     string
		value    *int64
		standard int64
	}{
		{"FrameBytes", &l.FrameBytes, DefaultFrameBytes},
		{"QueueBytes", &l.QueueBytes, DefaultQueueBytes},
		{"PlainQueueBytes", &l.PlainQueueBytes, DefaultPlainQueueBytes},
		{"ConnectionQueueBytes", &l.ConnectionQueueBytes, DefaultConnectionQueueBytes},
		{"TotalQueueBytes", &l.TotalQueueBytes, DefaultTotalQueueBytes},
		{"MinIncomingRate", &l.MinIncomingRate, DefaultMinIncomingRate},
	} {
		if err := orDefault(v.name, v.value, v.standard); err != nil {
			return Limits{}, err
		}
	}
	for _, v := range []struct {
		name     string
		value    *int
		standard int
	}{
		{"Connections", &l.Connections, DefaultConnections},
		{"StreamsPerConnection", &l.StreamsPerConnection, DefaultStreamsPerConnection},
		{"StreamsPerPrincipal", &l.StreamsPerPrincipal, DefaultStreamsPerPrincipal},
		{"StreamsPerExecutor", &l.StreamsPerExecutor, DefaultStreamsPerExecutor},
		{"Executors", &l.Executors, DefaultExecutors},
		{"ExecutorsPerPrincipal", &l.ExecutorsPerPrincipal, DefaultExecutorsPerPrincipal},
	} {
		if err := orDefault(v.name, v.value, v.standard); err != nil {
			return Limits{}, err
		}
	}
	for _, v := range []struct {
		name     string
		value    *time.Duration
		standard time.Duration
	}{
		{"StreamGrace", &l.StreamGrace, DefaultStreamGrace},
		{"StreamIdle", &l.StreamIdle, DefaultStreamIdle},
		{"URLLifetime", &l.URLLifetime, DefaultURLLifetime},
		{"ExecutorRetention", &l.ExecutorRetention, DefaultExecutorRetention},
		{"PresenceInterval", &l.PresenceInterval, DefaultPresenceInterval},
	} {
		if err := orDefault(v.name, v.value, v.standard); err != nil {
			return Limits{}, err
		}
	}
	return l, nil
}

func orDefault[T int | int64 | time.Duration](name string, value *T, standard T) error {
	if *value < 0 {
		return &LimitsError{Name: name, Value: *value}
	}
	if *value == 0 {
		*value = standard
	}
	return nil
}
