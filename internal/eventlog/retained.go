package eventlog

import "iter"

// retainedBatch is how many events RetainedOutput takes at once.
const retainedBatch = 64

// RetainedOutput goes through the output that is retained, in the order of seqs.
// It pins nothing and counts as no reader: what is evicted before it comes there
// is left out. It takes the log's lock only between the steps of who ranges over it.
func (l *Log) RetainedOutput() iter.Seq[Event] {
	return func(yield func(Event) bool) {
		var batch [retainedBatch]Event
		for next, n := uint64(0), retainedBatch; n == retainedBatch; {
			n, next = l.retainedFrom(next, &batch)
			for _, e := range batch[:n] {
				if e.Kind == Output && !yield(e) {
					return
				}
			}
		}
	}
}

// retainedFrom takes events from a seq on. The data stays what it is without a
// pin: blocks are never used again.
func (l *Log) retainedFrom(seq uint64, batch *[retainedBatch]Event) (n int, next uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for seq = max(seq, l.records.first); seq < l.records.end && n < len(batch); seq++ {
		batch[n] = l.records.at(seq).event(seq)
		n++
	}
	return n, seq
}
