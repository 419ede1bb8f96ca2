package rendezvous

import "sync/atomic"

// drop is why a frame was not routed. The list is closed.
type drop int

const (
	dropMalformed drop = iota // it names no stream
	dropForeign               // its stream is another principal's
	dropStale                 // its stream has been taken up on a later websocket
	dropUnknown               // the executor sent it for a stream that is not there
	dropEnded                 // its stream was reset by the hub, which the sender may not know yet
	dropAway                  // the other end is away and will be sent it again
	dropFull                  // it did not fit, and will be sent again
	dropEnd
)

var dropNames = [...]string{
	dropMalformed: "malformed", dropForeign: "foreign", dropStale: "stale", dropUnknown: "unknown_stream",
	dropEnded: "ended_stream", dropAway: "away", dropFull: "full",
}

// counts are what a hub has done since it began. They may be used concurrently.
type counts struct {
	frames, bytes atomic.Int64 // that were routed
	resets        atomic.Int64 // streams that the hub ended
	dropped       [dropEnd]atomic.Int64
}
