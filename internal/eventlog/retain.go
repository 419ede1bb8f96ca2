package eventlog

// settle restores the rules after any change, then wakes whom it concerns. It
// is the only place that evicts or wakes.
func (l *Log) settle() {
	l.evict()
	l.readers.wake()
	l.writers.wake()
}

// evict removes the oldest events, whole, while there is too much output. What
// a window protects stays. At least one output event always stays, because none
// is larger than a quarter of what may be retained.
func (l *Log) evict() {
	for l.overBudget() && !l.protected(l.records.first) {
		r := l.records.pop()
		if r.kind != Output {
			l.exitedEarlier = r // not closed: that is last, and output precedes it
			continue
		}
		l.retainedBytes -= int(r.n)
		l.outputs--
		l.blocks.unref(r.blk)
	}
}

// overBudget charges the blocks that only readers keep alive to what may be
// retained, up to half of it.
func (l *Log) overBudget() bool {
	allowed := l.limits.RetainedBytes - min(l.blocks.stranded, l.limits.RetainedBytes/2)
	return l.outputs > 0 && (l.retainedBytes > allowed || l.outputs > l.limits.RetainedEvents)
}

// lastSeq is 0 while the log is empty.
func (l *Log) lastSeq() uint64 { return l.records.end - 1 }

// position is a place between two events.
type position struct {
	next    uint64 // seq of the event that follows
	before  uint64 // output bytes of all streams before it
	inexact bool   // before is only a lower bound
}

// after returns the position that follows afterSeq, which is at most lastSeq.
// Of positions in what was evicted the log remembers the exact number of bytes
// only for the start, the exit and what the owner acknowledged.
func (l *Log) after(afterSeq uint64) position {
	p := position{next: afterSeq + 1}
	switch {
	case p.next == l.records.end:
		p.before = l.totalBytes
	case p.next >= l.records.first:
		p.before = l.records.at(p.next).before
	case p.next == l.exitedSeq:
		p.before = l.exitedEarlier.before
	case p.next >= l.acked.next:
		p.before = l.acked.before
		p.inexact = l.acked.inexact || p.next > l.acked.next
	default:
		p.inexact = p.next > 1
	}
	return p
}
