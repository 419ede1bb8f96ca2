package rendezvous

import "sync/atomic"

// dropReason is why a frame was not routed.
type dropReason int

const (
	dropMalformed dropReason = iota // it has no valid stream id
	dropForbidden                   // its stream belongs to another principal
	dropStale                       // its stream has moved to a later websocket
	dropUnknown                     // the executor sent it for an unknown stream
	dropEnded                       // the hub has reset its stream, which the sender may not know yet
	dropOffline                     // the other end is disconnected; the sender will retransmit
	dropFull                        // the queue is full; the sender will retransmit
	numDropReasons
)

var dropNames = [...]string{
	dropMalformed: "malformed", dropForbidden: "forbidden", dropStale: "stale", dropUnknown: "unknown_stream",
	dropEnded: "ended_stream", dropOffline: "offline", dropFull: "full",
}

// stats counts events since the hub started. It may be used concurrently.
type stats struct {
	frames, bytes atomic.Int64 // routed
	resets        atomic.Int64 // streams that the hub ended
	dropped       [numDropReasons]atomic.Int64
}

// Stats are what a hub has, and the counts since it started.
type Stats struct {
	// Online and Offline are the registered executors, at all nodes.
	Online, Offline int
	// PresenceReady is whether the presence of executors can be stored.
	PresenceReady bool
	// Connections are the websockets, and Streams the streams that are routed.
	Connections, Streams int
	// QueuedBytes wait to be sent.
	QueuedBytes int64
	// Frames and FrameBytes were routed, and Dropped were not, by the reason.
	Frames, FrameBytes int64
	Dropped            map[string]int64
	// Resets are the streams that the hub ended.
	Resets int64
}

// drop counts a frame that was not routed.
func (s *stats) drop(reason dropReason) { s.dropped[reason].Add(1) }
