package relay

import (
	"container/heap"
	"time"

	"github.com/execwire/execwire/internal/buffers"
)

// streamState is the endpoint's state of a stream.
type streamState struct {
	flow
	stream *Stream // nil in tests of the table

	timerIndex               int       // index in table.timers
	due                      time.Time // the deadline it is scheduled for
	urgentQueued, dataQueued bool      // it is in the queue
	live                     bool      // it is in table.streams
	endReported              bool      // the application knows that the stream ended
	released                 bool      // the application closed its connection: the end need not be reported
}

// table is the state of an endpoint: its streams and what they have to send. It
// has no lock and no clock; the caller provides both.
type table struct {
	config  Config
	pool    pool
	streams map[string]*streamState
	count   int // live streams, and ended ones whose end is not yet reported
	ended   endedStreams

	attached    bool
	replies     replyQueue
	urgentQueue []*streamState // streams with control frames to send
	dataQueue   []*streamState // streams with data to send
	urgentFirst bool           // the next control frame comes from urgentQueue rather than from replies
	controlRun  int            // control frames sent since the last data frame
	timers      timers

	opened  func(*streamState) // a peer began a stream
	changed func(*streamState) // a stream ended, or an operation on it may proceed
}

// popFront removes and returns the first element of a queue, which is not empty.
func popFront[T any](queue *[]T) T {
	var zero T
	first := (*queue)[0]
	(*queue)[0] = zero
	if *queue = (*queue)[1:]; len(*queue) == 0 {
		*queue = nil
	}
	return first
}

// newTable returns an empty table. The defaults of c are already filled in.
func newTable(c Config) *table {
	return &table{
		config:  c,
		pool:    pool{limit: c.LargeBytes},
		streams: map[string]*streamState{},
		replies: replyQueue{limit: max(minReplies, c.Streams)},
		opened:  func(*streamState) {},
		changed: func(*streamState) {},
	}
}

// begin adds a stream.
func (t *table) begin(id string, now time.Time) *streamState {
	st := &streamState{flow: *newFlow(id, &t.config, &t.pool, now), timerIndex: noTimer, live: true}
	t.streams[id] = st
	t.count++
	t.ended.remove(id)
	if t.attached {
		st.attach(now)
	}
	return st
}

// update queues and schedules a stream after it may have changed, and removes it
// from the table if it has ended.
func (t *table) update(st *streamState) {
	if !st.live {
		return
	}
	if st.flow.ended != nil {
		t.remove(st)
		if st.released {
			t.reportEnd(st)
		}
	} else {
		if !st.urgentQueued && st.urgent() {
			st.urgentQueued = true
			t.urgentQueue = append(t.urgentQueue, st)
		}
		if !st.dataQueued && st.ready() {
			st.dataQueued = true
			t.dataQueue = append(t.dataQueue, st)
		}
	}
	t.timers.update(st)
	t.changed(st)
}

// remove removes an ended stream and queues a reset for the peer unless the peer
// ended it.
func (t *table) remove(st *streamState) {
	st.live = false
	delete(t.streams, st.id)
	end := st.flow.ended
	t.ended.add(st.id, end.Reason)
	if !end.Remote && (t.attached || st.peer == reliable) {
		ack, _ := st.acknowledgement()
		t.replies.add(reply{id: st.id, ack: ack, reason: end.Reason})
	}
}

// reportEnd releases an ended stream whose end the application knows.
func (t *table) reportEnd(st *streamState) {
	if st.flow.ended != nil && !st.endReported {
		st.endReported = true
		t.count--
		st.receive.clear(true)
	}
}

// closing reports whether a stream that the application closed still waits for
// acknowledgements.
func (t *table) closing() bool {
	for _, st := range t.streams {
		if st.released {
			return true
		}
	}
	return false
}

// attach handles the start of a carrier.
func (t *table) attach(now time.Time) {
	t.attached = true
	for _, st := range t.streams {
		st.attach(now)
		t.update(st)
	}
}

// detach handles the end of a carrier.
func (t *table) detach() {
	t.attached = false
	t.replies.dropAcks()
	for _, st := range t.streams {
		st.detach()
		t.update(st)
	}
}

// handleFrame processes a frame, whose buffer it owns. The error says why it was dropped,
// if it should not have been sent.
func (t *table) handleFrame(now time.Time, b []byte) error {
	in, err := decode(b)
	defer func() { buffers.Put(in.buffer) }()
	if err != nil {
		return err
	}
	in.compact()
	st := t.streams[in.stream]
	if st == nil {
		if st = t.handleUnknown(now, &in); st == nil {
			return nil
		}
	}
	err = st.handleFrame(now, &in)
	t.update(st)
	return err
}

// handleUnknown processes a frame of an unknown stream, and returns the stream if
// the frame begins one.
func (t *table) handleUnknown(now time.Time, in *frame) *streamState {
	if in.body == bodyReset {
		return nil
	}
	reason, known := t.ended.reasons[in.stream]
	if known && in.hasAck() {
		if in.body != bodyAck {
			t.replies.add(reply{id: in.stream, ack: noSegment, reason: reason})
		}
		return nil
	}
	if t.config.Role != Executor {
		return nil
	}
	// Only a peer that has received nothing of the stream may begin it. Otherwise
	// it refers to a stream that this endpoint once had.
	begins := in.ack == t.config.first-1 && in.bits == 0
	switch {
	case in.body == bodyAck || !in.hasAck() && in.body != bodyData:
		return nil
	case in.body == bodyData && (!in.hasAck() || in.seq == t.config.first):
		if !in.hasAck() && in.count != 1 {
			return nil
		}
		return t.accept(now, in.stream)
	case in.body == bodyResume && in.next == 0 && begins && t.full():
		t.replies.add(reply{id: in.stream, ack: noSegment, reason: ReasonStreamLimit})
	case in.body == bodyResume && in.next == 0 && begins:
		t.replies.add(reply{id: in.stream, ack: t.config.first - 1})
	case in.body == bodyData && begins && distance(t.config.first, in.seq) < ackedBits:
		// The first segment is in flight, or will be retransmitted.
	default:
		t.replies.add(reply{id: in.stream, ack: noSegment, reason: ReasonUnknownStream})
	}
	return nil
}

// full reports whether an executor rejects further streams. Ended streams whose
// end is not yet reported do not count up to a second limit, because a rendezvous
// may end a stream to begin another at once.
func (t *table) full() bool {
	return len(t.streams) >= t.config.Streams || t.count >= 2*t.config.Streams
}

// accept begins a stream for a peer; nil if the limit is reached.
func (t *table) accept(now time.Time, id string) *streamState {
	if t.full() {
		t.replies.add(reply{id: id, ack: noSegment, reason: ReasonStreamLimit})
		return nil
	}
	st := t.begin(id, now)
	t.opened(st)
	return st
}

// maxControlRun is how many control frames may precede a data frame that is
// ready.
const maxControlRun = 32

// next returns the next frame to send, or nil. A control frame is built in b. The
// frame is valid until the next call. Control frames take precedence over data,
// up to maxControlRun: a peer may request replies faster than they can be sent.
func (t *table) next(now time.Time, b []byte) []byte {
	if !t.attached {
		return nil
	}
	if t.controlRun < maxControlRun {
		if out := t.control(now, b); out != nil {
			t.controlRun++
			return out
		}
	}
	t.controlRun = 0
	if out := t.data(now); out != nil {
		return out
	}
	return t.control(now, b)
}

// control returns the next control frame, built in b, or nil. Replies alternate
// with frames of streams, because peers may request replies faster than they can
// be sent.
func (t *table) control(now time.Time, b []byte) []byte {
	first, second := t.nextReply, t.nextUrgent
	if t.urgentFirst {
		first, second = second, first
	}
	t.urgentFirst = !t.urgentFirst
	if out := first(now, b); out != nil {
		return out
	}
	return second(now, b)
}

// nextReply returns the next reply, built in b, or nil.
func (t *table) nextReply(_ time.Time, b []byte) []byte {
	if st, ok := t.replies.next(); ok {
		if st.reason == "" {
			return appendEmpty(b, st.id, st.ack, 0, bodyAck)
		}
		return appendReset(b, st.id, st.ack, 0, st.reason)
	}
	return nil
}

// nextUrgent returns the next control frame of a stream, built in b, or nil.
func (t *table) nextUrgent(now time.Time, b []byte) []byte {
	for len(t.urgentQueue) > 0 {
		st := popFront(&t.urgentQueue)
		if st.urgentQueued = false; st.urgent() {
			b = st.control(now, b)
			t.update(st)
			return b
		}
	}
	return nil
}

// data returns the next segment, round-robin among the streams, or nil.
func (t *table) data(now time.Time) []byte {
	for len(t.dataQueue) > 0 {
		st := popFront(&t.dataQueue)
		if st.dataQueued = false; st.ready() {
			b := st.segment(now)
			t.update(st)
			return b
		}
	}
	return nil
}

// pending reports whether next may return a frame.
func (t *table) pending() bool {
	return t.attached && len(t.replies.queue)+len(t.urgentQueue)+len(t.dataQueue) > 0
}

// deadline returns when fireTimers has work to do; zero means never.
func (t *table) deadline() time.Time {
	if len(t.timers) == 0 {
		return time.Time{}
	}
	return t.timers[0].due
}

// fireTimers processes the timers that are due.
func (t *table) fireTimers(now time.Time) {
	for len(t.timers) > 0 && !t.timers[0].due.After(now) {
		st := heap.Pop(&t.timers).(*streamState)
		st.fire(now)
		t.update(st)
	}
}
