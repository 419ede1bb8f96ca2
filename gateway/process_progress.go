package gateway

import "time"

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
	// received is the last seq from the server, sent the last seq sent to the client.
	received, sent uint64
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
	pins map[*reading]struct{}

	// reads counts answers to process/read since the client last left sent events
	// unread for readerTimeout; unread is the time since which it does.
	reads  int
	unread time.Time
}

// restart resets the record for another process with the same id.
func (p *process) restart() {
	p.progress = progress{generation: p.generation + 1}
	p.mode = processMode{}
	if p.nextMode != nil {
		p.mode = *p.nextMode
	}
	p.nextMode, p.closed, p.exit, p.ended, p.gap = nil, false, 0, nil, nil
	p.closeWait, p.exitDue, p.exitSent, p.exitDelivered = nil, false, false, false
}

// proof is what a watermark would prove of a process now.
type proof struct {
	process    *process
	generation int
	sent, read uint64
}

func (p *process) pendingProof() proof {
	return proof{process: p, generation: p.generation, sent: p.provablySent(), read: p.read}
}

// provablySent is the last seq up to which everything is sent. In the older dialect the
// exit may be sent after later events; until then a resuming connection must get it
// again.
func (p *process) provablySent() uint64 {
	if p.mode.legacy && p.exit > 0 && !p.exitDelivered {
		return min(p.sent, p.exit-1)
	}
	return p.sent
}

// prove confirms what a watermark proved. For a client that uses process/read, only
// answers count.
func (p *process) prove(m proof, now time.Time) {
	p.confirm(m.read)
	if p.backlog == 0 && !p.isReader(now) {
		p.confirm(m.sent)
	}
}

// isReader reports whether the client takes output from process/read.
func (p *process) isReader(now time.Time) bool {
	if p.reads >= minReaderReads && p.sent > p.confirmed && now.Sub(p.unread) >= readerTimeout {
		p.reads = 0
	}
	return p.reads >= minReaderReads
}

// push records that events up to seq were sent.
func (p *process) push(seq uint64) {
	if p.reads >= minReaderReads && p.sent <= p.confirmed {
		p.unread = time.Now()
	}
	p.sent = max(p.sent, seq)
}

// answer records an answer to process/read with events up to seq.
func (p *process) answer(seq uint64) {
	p.reads++
	p.unread = time.Now()
	p.read = max(p.read, seq)
	p.backlogSlices = backlogSlices
}

// confirm records that the client has everything up to seq.
func (p *process) confirm(seq uint64) {
	p.confirmed = max(p.confirmed, seq)
	if p.confirmed >= p.backlog {
		p.backlog = 0
	}
}

// confirmClaim confirms events up to seq because the client says so. seq may exceed what
// exists. Events count once received: the client may have them before they are recorded
// as sent.
func (p *process) confirmClaim(seq uint64) { p.confirm(min(seq, max(p.received, p.backlog, p.read))) }

func (p *process) pin(r *reading) {
	if p.pins == nil {
		p.pins = make(map[*reading]struct{})
	}
	p.pins[r] = struct{}{}
}

func (p *process) unpin(r *reading) { delete(p.pins, r) }

// unacknowledged returns the last seq that can be acknowledged, and whether the server
// does not know it yet. Events that a pending read needs are not acknowledged.
func (p *process) unacknowledged() (seq uint64, pending bool) {
	seq = min(p.confirmed, p.received)
	for r := range p.pins {
		seq = min(seq, r.after)
	}
	return seq, seq > p.acknowledged
}

// isUnproven reports whether a watermark would prove something.
func (p *process) isUnproven() bool {
	return p.read > p.confirmed || p.backlog == 0 && p.provablySent() > p.confirmed
}
