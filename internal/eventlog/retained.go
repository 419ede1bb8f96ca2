package eventlog

import "iter"

// retainedBatch is how many events RetainedOutput takes at once.
const retainedBatch = 64

// RetainedOutput iterates over the retained output, ordered by seq. It pins nothing
// and does not count as a reader: events that are evicted before it reaches them are
// skipped. It does not hold the log's lock during the loop body.
func (l *Log) RetainedOutput() iter.Seq[Event] {
	return func(yield func(Event) bool) {
		var batch [retainedBatch]Event
		for next, n := uint64(0), retainedBatch; n == retainedBatch; {
			l.mu.Lock()
			n, next = l.retainedFrom(next, &batch)
			l.mu.Unlock()
			for _, e := range batch[:n] {
				if e.Kind == Output && !yield(e) {
					return
				}
			}
		}
	}
}

// retainedFrom copies events from a seq on. Their data stays valid without a pin.
func (m *memoryTier) retainedFrom(seq uint64, batch *[retainedBatch]Event) (n int, next uint64) {
	for seq = max(seq, m.records.first); seq < m.records.end && n < len(batch); seq++ {
		batch[n] = m.records.at(seq).share(seq)
		n++
	}
	return n, seq
}
