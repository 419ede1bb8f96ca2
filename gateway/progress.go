package gateway

import "time"

// holePatience is how long after initialized, and after each read, a client has
// to read what it missed while nobody was attached. What it has not read then
// counts as taken, so that a client that never reads does not hold its processes
// back for ever.
const holePatience = 10 * time.Second

const (
	// readsOfAReader is how many reads of a process show that the client takes
	// output from answers, and that what is pushed only wakes it. One alone may be
	// for what it missed.
	readsOfAReader = 2
	// readerPatience is how long such a client may leave unread what was pushed.
	// Then that counts as taken again, so that a client that has changed its way
	// does not hold its processes back.
	readerPatience = time.Second
)

// progress is how far the client is with the events of one process.
type progress struct {
	// generation tells processes that have one id after the other apart.
	generation int
	// received is the last seq that came from the core, said the last that was
	// pushed to the client.
	received, said uint64
	// taken is up to where the client is known to have everything, acknowledged
	// what of it the core was told.
	taken, acknowledged uint64
	// unmarked is how many bytes were pushed since the last watermark.
	unmarked int

	// missed is the process's last seq at the time when the session was resumed:
	// events up to it are not pushed, the client reads them.
	missed uint64
	// hole is missed until the client has read so far, or counts as if; then 0.
	hole uint64
	// read is up to where answers of process/read have covered events.
	read uint64
	// patience is when the hole counts as taken.
	patience time.Time
	// pins are the reads that the core has not answered yet.
	pins map[*reading]struct{}

	// reads is how many answers of process/read there were since the client last
	// left something unread for too long, unread since when it leaves something.
	reads  int
	unread time.Time
}

// restart begins anew for another process under the same id.
func (p *process) restart() {
	p.progress = progress{generation: p.generation + 1}
	p.manner = manner{}
	if p.renewed != nil {
		p.manner = *p.renewed
	}
	p.renewed, p.closed, p.exit, p.ended, p.gap = nil, false, 0, nil, nil
	p.closeWait, p.exitDue, p.exitSaid, p.exitTold = nil, false, false, false
}

// proven is what would be proven of a process by a watermark now.
type proven struct {
	process    *process
	generation int
	said, read uint64
}

func (p *process) provable() proven {
	return proven{process: p, generation: p.generation, said: p.provablySaid(), read: p.read}
}

// provablySaid is up to where the client has everything that it is to be told if
// it has what was pushed. The exit may be told after what follows it: until then a
// connection that resumes the session must get it again.
func (p *process) provablySaid() uint64 {
	if p.manner.older && p.exit > 0 && !p.exitTold {
		return min(p.said, p.exit-1)
	}
	return p.said
}

// prove notes that the client has what a watermark proved. That it was pushed
// proves nothing of a client that reads.
func (p *process) prove(m proven, now time.Time) {
	p.take(m.read)
	if p.hole == 0 && !p.isReader(now) {
		p.take(m.said)
	}
}

// isReader reports whether the client takes output from answers of process/read.
func (p *process) isReader(now time.Time) bool {
	if p.reads >= readsOfAReader && p.said > p.taken && now.Sub(p.unread) >= readerPatience {
		p.reads = 0
	}
	return p.reads >= readsOfAReader
}

// push notes that events up to seq were pushed.
func (p *process) push(seq uint64) {
	if p.reads >= readsOfAReader && p.said <= p.taken {
		p.unread = time.Now()
	}
	p.said = max(p.said, seq)
}

// answer notes that an answer of process/read covered events up to seq.
func (p *process) answer(seq uint64) {
	p.reads++
	p.unread = time.Now()
	p.read = max(p.read, seq)
	if p.hole > 0 {
		p.patience = p.unread.Add(holePatience)
	}
}

// take notes that the client has everything up to seq.
func (p *process) take(seq uint64) {
	p.taken = max(p.taken, seq)
	if p.taken >= p.hole {
		p.hole = 0
	}
}

// claim notes that the client says of itself that it has everything up to seq,
// which may be more than there is. What came from the core counts before it was
// noted as said: the client may be quicker.
func (p *process) claim(seq uint64) { p.take(min(seq, max(p.received, p.hole, p.read))) }

func (p *process) pin(r *reading) {
	if p.pins == nil {
		p.pins = make(map[*reading]struct{})
	}
	p.pins[r] = struct{}{}
}

func (p *process) unpin(r *reading) { delete(p.pins, r) }

// unacknowledged returns up to where the core can be told that the client has
// everything, if that is news. What is being read it must not drop.
func (p *process) unacknowledged() (seq uint64, isNews bool) {
	seq = min(p.taken, p.received)
	for r := range p.pins {
		seq = min(seq, r.after)
	}
	return seq, seq > p.acknowledged
}

// isUnproven reports whether a watermark would prove something.
func (p *process) isUnproven() bool {
	return p.read > p.taken || p.hole == 0 && p.provablySaid() > p.taken
}
