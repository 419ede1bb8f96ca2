package relay

import (
	"container/heap"
	"time"
)

// line is a stream as its endpoint has it.
type line struct {
	flow
	stream *Stream // what the application has of it; nil in tests of the table

	timer           int       // its place among the timers
	due             time.Time // what it is there for
	hurried, turned bool      // it is in that queue
	live            bool      // it is in the table
	told            bool      // the application has learnt that it has ended
	quit            bool      // the application has left, and need not learn it
}

// table is the state of an endpoint: its streams, and what they have to send. It
// has no lock and no clock: whoever owns it has both.
type table struct {
	config Config
	pool   pool
	lines  map[string]*line
	count  int // streams that are live, or have ended and nobody was told
	ended  memory

	attached bool
	answers  answers
	hurry    ring // those with something that does not wait for its turn
	turns    ring // those with data
	answered bool // it is the turn of hurry, and not of answers
	spree    int  // how many frames of no data went out since the last of data
	timers   timers

	opened  func(*line) // a peer began a stream
	changed func(*line) // something may have become possible, or it ended
}

// ring is a queue of streams.
type ring struct{ queue []*line }

func (r *ring) push(one *line) { r.queue = append(r.queue, one) }

func (r *ring) pop() *line {
	if len(r.queue) == 0 {
		return nil
	}
	one := r.queue[0]
	r.queue[0] = nil
	if r.queue = r.queue[1:]; len(r.queue) == 0 {
		r.queue = nil
	}
	return one
}

// newTable returns a table without streams. c has its defaults.
func newTable(c Config) *table {
	return &table{
		config:  c,
		pool:    pool{limit: c.LargeBytes},
		lines:   map[string]*line{},
		answers: answers{limit: max(leastAnswers, c.Streams)},
		opened:  func(*line) {},
		changed: func(*line) {},
	}
}

// begin adds a stream.
func (t *table) begin(id string, now time.Time) *line {
	one := &line{flow: *newFlow(id, &t.config, &t.pool, now), timer: noTimer, live: true}
	t.lines[id] = one
	t.count++
	t.ended.forget(id)
	if t.attached {
		one.attach(now)
	}
	return one
}

// arrange puts a stream where it belongs after it may have changed, and takes it
// out of the table if it has ended.
func (t *table) arrange(one *line) {
	if !one.live {
		return
	}
	if one.flow.ended != nil {
		t.remove(one)
		if one.quit {
			t.tell(one)
		}
	} else {
		if !one.hurried && one.urgent() {
			one.hurried = true
			t.hurry.push(one)
		}
		if !one.turned && one.ready() {
			one.turned = true
			t.turns.push(one)
		}
	}
	t.timers.arrange(one)
	t.changed(one)
}

// remove takes out a stream that has ended, and tells the peer unless it knows.
func (t *table) remove(one *line) {
	one.live = false
	delete(t.lines, one.id)
	end := one.flow.ended
	t.ended.remember(one.id, end.Reason)
	if !end.Remote && (t.attached || one.peer == reliable) {
		ack, _ := one.acknowledgement()
		t.answers.add(answer{id: one.id, ack: ack, reason: end.Reason})
	}
}

// tell frees the place of a stream of whose end the application has learnt.
func (t *table) tell(one *line) {
	if one.flow.ended != nil && !one.told {
		one.told = true
		t.count--
		one.receive.clear(true, &t.pool)
	}
}

// leaving reports whether streams wait for what was sent to arrive, to end.
func (t *table) leaving() bool {
	for _, one := range t.lines {
		if one.quit {
			return true
		}
	}
	return false
}

// attach begins a carrier.
func (t *table) attach(now time.Time) {
	t.attached = true
	for _, one := range t.lines {
		one.attach(now)
		t.arrange(one)
	}
}

// detach ends a carrier.
func (t *table) detach() {
	t.attached = false
	t.answers.keepResets()
	for _, one := range t.lines {
		one.detach()
		t.arrange(one)
	}
}

// hear takes in a frame. The error is why it was dropped, if it should not have
// been sent.
func (t *table) hear(now time.Time, b []byte) error {
	in, err := decode(b)
	if err != nil {
		return err
	}
	one := t.lines[string(in.stream)]
	if one == nil {
		if one = t.unknown(now, &in); one == nil {
			return nil
		}
	}
	err = one.hear(now, &in)
	t.arrange(one)
	return err
}

// unknown decides about a frame of a stream that there is not, and returns the
// stream if it begins one.
func (t *table) unknown(now time.Time, in *frame) *line {
	if in.body == bodyReset {
		return nil
	}
	reason, known := t.ended.reasons[string(in.stream)]
	if known && in.shows() {
		if in.body != bodyAck {
			t.answers.add(answer{id: string(in.stream), ack: none, reason: reason})
		}
		return nil
	}
	if t.config.Role != Executor {
		return nil
	}
	// A peer that has received nothing of the stream may have begun it; one that
	// has speaks of a stream that this end had once.
	begins := in.ack == t.config.first-1 && in.bits == 0
	switch {
	case in.body == bodyAck || !in.shows() && in.body != bodyData:
		return nil
	case in.body == bodyData && (!in.shows() || in.seq == t.config.first):
		if !in.shows() && in.count != 1 {
			return nil
		}
		return t.accept(now, string(in.stream))
	case in.body == bodyResume && in.next == 0 && begins && t.full():
		t.answers.add(answer{id: string(in.stream), ack: none, reason: ReasonStreamLimit})
	case in.body == bodyResume && in.next == 0 && begins:
		t.answers.add(answer{id: string(in.stream), ack: t.config.first - 1})
	case in.body == bodyData && begins && distance(t.config.first, in.seq) < ackedBits:
		// The first segment is on its way, or will be sent again.
	default:
		t.answers.add(answer{id: string(in.stream), ack: none, reason: ReasonUnknownStream})
	}
	return nil
}

// full reports whether an executor takes no further stream. One that has ended, and
// the application has not learnt so, keeps its place for a moment: a rendezvous
// that ends one to begin another must not find it taken. Those are bounded, too.
func (t *table) full() bool {
	return len(t.lines) >= t.config.Streams || t.count >= 2*t.config.Streams
}

// accept begins a stream for a peer; nil if there are too many.
func (t *table) accept(now time.Time, id string) *line {
	if t.full() {
		t.answers.add(answer{id: id, ack: none, reason: ReasonStreamLimit})
		return nil
	}
	one := t.begin(id, now)
	t.opened(one)
	return one
}

// mostSpree is how many frames of no data may go out before some data does.
const mostSpree = 32

// next returns the next frame to send, in b if it is not a segment; nil if there
// is none. It is valid until the next call. Data waits for all else, but not for
// ever: a peer may ask for answers faster than they are sent.
func (t *table) next(now time.Time, b []byte) []byte {
	if !t.attached {
		return nil
	}
	if t.spree < mostSpree {
		if out := t.control(now, b); out != nil {
			t.spree++
			return out
		}
	}
	t.spree = 0
	if out := t.data(now); out != nil {
		return out
	}
	return t.control(now, b)
}

// control returns the next frame that is no data, in b; nil if there is none.
// Answers and what streams have to say take turns: peers may ask for the former
// faster than they are sent.
func (t *table) control(now time.Time, b []byte) []byte {
	first, second := t.nextAnswer, t.nextUrgent
	if t.answered {
		first, second = second, first
	}
	t.answered = !t.answered
	if out := first(now, b); out != nil {
		return out
	}
	return second(now, b)
}

// nextAnswer returns the next answer, in b; nil if there is none.
func (t *table) nextAnswer(_ time.Time, b []byte) []byte {
	if one, ok := t.answers.next(); ok {
		if one.reason == "" {
			return appendEmpty(b, one.id, one.ack, 0, bodyAck)
		}
		return appendReset(b, one.id, one.ack, 0, one.reason)
	}
	return nil
}

// nextUrgent returns the next frame of a stream that does not wait for its turn, in
// b; nil if there is none.
func (t *table) nextUrgent(now time.Time, b []byte) []byte {
	for one := t.hurry.pop(); one != nil; one = t.hurry.pop() {
		if one.hurried = false; one.urgent() {
			b = one.control(now, b)
			t.arrange(one)
			return b
		}
	}
	return nil
}

// data returns the next segment of the stream whose turn it is; nil if there is
// none.
func (t *table) data(now time.Time) []byte {
	for one := t.turns.pop(); one != nil; one = t.turns.pop() {
		if one.turned = false; one.ready() {
			b := one.segment(now)
			t.arrange(one)
			return b
		}
	}
	return nil
}

// waiting reports whether next may have something.
func (t *table) waiting() bool {
	return t.attached && len(t.answers.queue)+len(t.hurry.queue)+len(t.turns.queue) > 0
}

// deadline returns when strike has something to do; zero is never.
func (t *table) deadline() time.Time {
	if len(t.timers) == 0 {
		return time.Time{}
	}
	return t.timers[0].due
}

// strike does what is due.
func (t *table) strike(now time.Time) {
	for len(t.timers) > 0 && !t.timers[0].due.After(now) {
		one := heap.Pop(&t.timers).(*line)
		one.strike(now)
		t.arrange(one)
	}
}
