package rendezvous

import (
	"cmp"
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

// Limits bound what a hub buffers and waits for. Zero fields mean the defaults.
type Limits struct {
	// FrameBytes is the maximum size of a routed frame. The websocket that sends
	// a larger one is closed with code 1009. Peers that do not segment send whole
	// messages in a frame. 0 is DefaultFrameBytes.
	FrameBytes int64
	// QueueBytes bounds each queue of a stream whose ends both retransmit: one
	// window, and some. A frame counts as at least [minFrameBytes]. Frames beyond
	// it are dropped; the stream is reset once nothing has left the queue for
	// StreamGrace. 0 is DefaultQueueBytes.
	QueueBytes int64
	// PlainQueueBytes is the same for a stream with an end that does not
	// retransmit, and has no window either. The stream is reset when a frame does
	// not fit. 0 is DefaultPlainQueueBytes.
	PlainQueueBytes int64
	// ConnectionQueueBytes bounds what is queued for one websocket, over all its
	// streams, and TotalQueueBytes for the whole hub; one principal may use at
	// most as much as is free. At the limit the longest queue of the websocket is
	// treated as full. 64 KiB per queue do not count. 0 is
	// DefaultConnectionQueueBytes and DefaultTotalQueueBytes.
	ConnectionQueueBytes, TotalQueueBytes int64
	// MinIncomingRate is the rate in bytes per second below which a large frame
	// that is being received may be evicted once such frames take
	// TotalQueueBytes. 0 is DefaultMinIncomingRate.
	MinIncomingRate int64
	// Connections is how many websockets one principal may have, of executors and
	// harnesses together. Further ones are rejected with 429. 0 is
	// DefaultConnections.
	Connections int
	// StreamsPerConnection bounds the streams of one websocket of a harness,
	// StreamsPerPrincipal those of all websockets of a principal, and
	// StreamsPerExecutor those of one executor, which may announce fewer. Further
	// streams are reset with stream_limit; at an executor, streams of the
	// principal and the websocket with the most are evicted first. 0 is the
	// default of each.
	StreamsPerConnection, StreamsPerPrincipal, StreamsPerExecutor int
	// Executors is how many executors the hub knows, connected or not, and
	// ExecutorsPerPrincipal how many of them one principal has registered. At
	// either limit the record of an absent executor is evicted: one of the
	// principal itself at its share, one of the principal with the most at the
	// total. If none has been absent for long enough, the registration is
	// rejected with 429. 0 is DefaultExecutors and DefaultExecutorsPerPrincipal.
	Executors, ExecutorsPerPrincipal int
	// StreamGrace is how long a peer that retransmits may be absent before its
	// streams are reset. 0 is DefaultStreamGrace.
	StreamGrace time.Duration
	// StreamIdle is how long a stream whose ends both retransmit may be without a
	// frame before it is forgotten; such ends send heartbeats. 0 is
	// DefaultStreamIdle.
	StreamIdle time.Duration
	// URLLifetime is how long the URL of a registration, or of a request to
	// connect, is valid. 0 is DefaultURLLifetime.
	URLLifetime time.Duration
	// ExecutorRetention is how long the record of an absent executor is kept at
	// least, if its principal has no more records than the principal that needs
	// the space. Otherwise, and for an executor that never connected, that is
	// URLLifetime. 0 is DefaultExecutorRetention.
	ExecutorRetention time.Duration
	// PresenceInterval is how often the hub renews the presence of a connected
	// executor. 0 is DefaultPresenceInterval.
	PresenceInterval time.Duration
}

// withDefaults returns l with zero fields replaced.
func (l Limits) withDefaults() Limits {
	l.FrameBytes = cmp.Or(l.FrameBytes, DefaultFrameBytes)
	l.QueueBytes = cmp.Or(l.QueueBytes, DefaultQueueBytes)
	l.PlainQueueBytes = cmp.Or(l.PlainQueueBytes, DefaultPlainQueueBytes)
	l.ConnectionQueueBytes = cmp.Or(l.ConnectionQueueBytes, DefaultConnectionQueueBytes)
	l.TotalQueueBytes = cmp.Or(l.TotalQueueBytes, DefaultTotalQueueBytes)
	l.MinIncomingRate = cmp.Or(l.MinIncomingRate, DefaultMinIncomingRate)
	l.Connections = cmp.Or(l.Connections, DefaultConnections)
	l.StreamsPerConnection = cmp.Or(l.StreamsPerConnection, DefaultStreamsPerConnection)
	l.StreamsPerPrincipal = cmp.Or(l.StreamsPerPrincipal, DefaultStreamsPerPrincipal)
	l.StreamsPerExecutor = cmp.Or(l.StreamsPerExecutor, DefaultStreamsPerExecutor)
	l.Executors = cmp.Or(l.Executors, DefaultExecutors)
	l.ExecutorsPerPrincipal = cmp.Or(l.ExecutorsPerPrincipal, DefaultExecutorsPerPrincipal)
	l.StreamGrace = cmp.Or(l.StreamGrace, DefaultStreamGrace)
	l.StreamIdle = cmp.Or(l.StreamIdle, DefaultStreamIdle)
	l.URLLifetime = cmp.Or(l.URLLifetime, DefaultURLLifetime)
	l.ExecutorRetention = cmp.Or(l.ExecutorRetention, DefaultExecutorRetention)
	l.PresenceInterval = cmp.Or(l.PresenceInterval, DefaultPresenceInterval)
	return l
}
