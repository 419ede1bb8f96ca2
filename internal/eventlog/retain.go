package eventlog

// settle evicts what exceeds the limits after any change, then wakes the waiters.
// Only settle evicts or wakes. It evicts the oldest events, whole, and stops at events that a
// window protects, or that a file will have. At least one output event stays, because none is
// larger than a quarter of the limit.
func (l *Log) settle() {
	for l.overBudget() && !l.window.protects(l.records.first) && !l.mustSave() {
		l.evict()
	}
	l.readers.wake()
	l.writers.wake()
}

// position is a position between two events.
type position struct {
	next    uint64 // seq of the event that follows
	before  uint64 // output bytes of all streams before it
	inexact bool   // before is only a lower bound
}

// after returns the position after afterSeq, which is at most lastSeq. For positions
// among evicted events the log knows the exact number of bytes only at the start, the
// exit, the acknowledged position, and around the blocks of its file.
func (l *Log) after(afterSeq uint64) position {
	p := position{next: afterSeq + 1}
	switch {
	case p.next == l.records.end:
		p.before = l.totalBytes
	case p.next >= l.records.first:
		p.before = l.records.at(p.next).before
	case p.next == l.exitedSeq:
		p.before = l.evictedExit.before
	default:
		known := l.tier.before(p.next)
		if acked := l.window.acked; acked.next <= p.next && acked.before >= known.before {
			known = acked
		}
		p.before = known.before
		p.inexact = known.inexact || p.next > known.next
	}
	return p
}
