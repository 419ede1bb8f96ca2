package relay

import "slices"

// minReplies is the least capacity of a replyQueue.
const minReplies = 1024

// reply is a frame for a stream that this endpoint does not have: an
// acknowledgement that acknowledges nothing, or a reset.
type reply struct {
	id     string
	ack    uint32
	reason string // of a reset; empty for an acknowledgement
}

// replyQueue holds the replies to be sent, at most one per stream. Replies beyond
// the limit are discarded: a peer that needs one asks again.
type replyQueue struct {
	limit   int
	queue   []reply
	pending map[string]bool // by id; true for a reset
}

// add queues a reply. A reset replaces an acknowledgement of the same stream.
func (a *replyQueue) add(r reply) {
	reset, waits := a.pending[r.id]
	switch {
	case waits && !reset && r.reason != "":
		at := slices.IndexFunc(a.queue, func(other reply) bool { return other.id == r.id })
		a.queue[at] = r
	case waits || len(a.queue) >= a.limit:
		return
	default:
		a.queue = append(a.queue, r)
	}
	if a.pending == nil {
		a.pending = map[string]bool{}
	}
	a.pending[r.id] = r.reason != ""
}

// next removes and returns the oldest reply; false if there is none.
func (a *replyQueue) next() (reply, bool) {
	if len(a.queue) == 0 {
		return reply{}, false
	}
	r := popFront(&a.queue)
	delete(a.pending, r.id)
	return r, true
}

// dropAcks discards the acknowledgements. Peers ask for them again on the next
// carrier.
func (a *replyQueue) dropAcks() {
	a.queue = slices.DeleteFunc(a.queue, func(r reply) bool {
		if r.reason == "" {
			delete(a.pending, r.id)
		}
		return r.reason == ""
	})
}
