package gateway

import "time"

// timeoutSlice divides client timeouts. A slice that takes longer counts as one, so
// that a suspended machine does not expire the timeouts of its clients.
const timeoutSlice = time.Second

// backlogTimeout is how long after initialized, and after each read, a client has time
// to read its backlog: the output of the time when nobody was attached. Then the rest
// counts as confirmed, so that a client that never reads does not block its processes.
const (
	backlogTimeout = 10 * time.Second
	backlogSlices  = int(backlogTimeout / timeoutSlice)
)

const (
	// minReaderReads is the number of reads of a process that shows that the client
	// takes output from process/read and uses notifications as a wake-up only. A
	// single read may be for the backlog.
	minReaderReads = 2
	// readerTimeout is how long such a client may leave sent events unread. Then sent
	// counts as confirmed again, in case the client has stopped to use process/read.
	readerTimeout = time.Second
)

// progress is the client's position in the events of one process.
type progress struct {
	// generation distinguishes processes that reuse an id.
	generation int
	// received is the last seq from the server, sent the last seq sent to the client, and
	// done the last whose event is not used any more: it is sent, or the client reads it.
	received, sent, done uint64
	// confirmed is the last seq up to which the client has everything; acknowledged is
	// what the server knows of it.
	confirmed, acknowledged uint64
	// unmarked is the number of bytes sent since the last watermark.
	unmarked int

	// missed is the last seq when the session was resumed. Events up to it are not
	// sent; the client reads them.
	missed uint64
	// backlog is missed until the client has read it or the timeout has expired; then
	// 0.
	backlog uint64
	// read is the last seq in an answer to process/read.
	read uint64
	// backlogSlices is the number of timeoutSlices after which the backlog counts as
	// confirmed.
	backlogSlices int
	// pins are the reads that the server has not answered yet.
	pins map[*pin]struct{}

	// reads counts answers to process/read since the client last left sent events
	// unread for readerTimeout; unread is the time since which it does.
	reads  int
	unread time.Time
}

// isReader reports whether the client takes output from process/read.
func (p *progress) isReader(now time.Time) bool {
	if p.reads >= minReaderReads && p.sent > p.confirmed && now.Sub(p.unread) >= readerTimeout {
		p.reads = 0
	}
	return p.reads >= minReaderReads
}

// push records that events up to seq were sent.
func (p *progress) push(seq uint64) {
	if p.reads >= minReaderReads && p.sent <= p.confirmed {
		p.unread = time.Now()
	}
	p.sent = max(p.sent, seq)
	p.done = max(p.done, seq)
}

// answer records an answer to process/read with events up to seq.
func (p *progress) answer(seq uint64) {
	p.reads++
	p.unread = time.Now()
	p.read = max(p.read, seq)
	p.backlogSlices = backlogSlices
}

// confirm records that the client has everything up to seq.
func (p *progress) confirm(seq uint64) {
	p.confirmed = max(p.confirmed, seq)
	if p.confirmed >= p.backlog {
		p.backlog = 0
	}
}

// confirmClaim confirms events up to seq because the client says so. seq may exceed what
// exists. Events count once received: the client may have them before they are recorded
// as sent.
func (p *progress) confirmClaim(seq uint64) { p.confirm(min(seq, max(p.received, p.backlog, p.read))) }

// pin keeps the server from dropping the events after a seq.
type pin struct{ after uint64 }

func (p *progress) pin(after uint64) *pin {
	if p.pins == nil {
		p.pins = make(map[*pin]struct{})
	}
	made := &pin{after: after}
	p.pins[made] = struct{}{}
	return made
}

// unacknowledged returns the last seq that can be acknowledged, and whether the server
// does not know it yet. Events that a pending read needs are not acknowledged, nor those that
// are being sent: the server may then use their memory again.
func (p *progress) unacknowledged() (seq uint64, pending bool) {
	seq = min(p.confirmed, p.done)
	for pinned := range p.pins {
		seq = min(seq, pinned.after)
	}
	return seq, seq > p.acknowledged
}
