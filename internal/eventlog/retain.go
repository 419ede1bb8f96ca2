package eventlog

// settle evicts what exceeds the limits after any change, then wakes the waiters.
// Only settle evicts or wakes.
func (l *Log) settle() {
	l.evict()
	l.readers.wake()
	l.writers.wake()
}

// evict removes the oldest events, whole, while there is too much output. It stops at
// events that a window protects, or that a file will have. At least one output event stays, because none is
// larger than a quarter of the limit.
func (l *Log) evict() {
	for l.overBudget() && !l.window.protects(l.records.first) && !l.mustSave() {
		r := l.records.pop()
		if r.kind != Output {
			l.evictedExit = r // never the closed event, which is last
			continue
		}
		l.retainedBytes -= int(r.n)
		l.outputs--
		l.blocks.unref(r.blk)
	}
}

// overBudget reports whether too much output is retained: any, once the file has all of it.
// Blocks that only readers keep alive count, up to half of the limit.
func (l *Log) overBudget() bool {
	if l.offloaded {
		return l.outputs > 0
	}
	allowed := l.limits.RetainedBytes - min(l.blocks.stranded, l.limits.RetainedBytes/2)
	return l.outputs > 0 && (l.retainedBytes > allowed || l.outputs > l.limits.RetainedEvents)
}

// lastSeq returns the last seq, 0 while the log is empty.
func (l *Log) lastSeq() uint64 { return l.records.end - 1 }

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
