package eventlog

import "sync"

// Log is the output and the end of one process. All methods may be called
// concurrently; only Writer.WaitSpace, Reader.Next and Owner.Next wait for others. A log
// has no goroutines, and its memory goes with the last reference to it. Its file, if it
// has one, goes with Discard: only Writer.WaitSpace, the cursors and Discard use the disk.
type Log struct {
	mu         sync.Mutex
	memoryTier     // guarded by mu, but for limits, which do not change
	batchBytes int // event slices of cursors; guarded by mu

	// Ownership and window, guarded by mu. The log is owned if there is an owner and
	// the window is paced, held if only the latter, and was freed if only the former.
	owner  *Owner
	window window

	tier fileTier

	// Cursors and waiters, guarded by mu.
	observers int
	owners    int // including replaced ones that were not released
	readers   waiters
	writers   waiters
}

// New returns an empty log without a second tier. It allocates no blocks: a process without
// output costs a few hundred bytes.
func New(limits Limits) *Log { return (*Files)(nil).New(limits) }

// New returns an empty log whose second tier is one of the files. A log that has had output
// ends with Discard.
func (f *Files) New(limits Limits) *Log {
	l := &Log{memoryTier: memoryTier{limits: limits.WithDefaults()}}
	l.tier.files, l.tier.mu = f, &l.mu
	l.window = window{memory: &l.memoryTier, paced: limits.Held, acked: position{next: 1}}
	l.blocks.spareSize = l.limits.largestBlock()
	l.records.first, l.records.end = 1, 1
	return l
}

// AppendExited records that the process exited and returns the event's seq. It
// panics when called twice or after AppendClosed.
func (l *Log) AppendExited() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.exitedSeq != 0 {
		panic("eventlog: exited twice")
	}
	l.exitedSeq = l.push(record{kind: Exited, before: l.totalBytes})
	l.settle()
	return l.exitedSeq
}

// AppendClosed ends the log and returns the last event's seq. It panics before
// AppendExited, because a log must not end without an exit; any append after it
// panics, too.
func (l *Log) AppendClosed() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.exitedSeq == 0 {
		panic("eventlog: closed before exited")
	}
	l.closedSeq = l.push(record{kind: Closed, before: l.totalBytes})
	for _, s := range l.streams {
		if s != nil {
			s.dropBlock(&l.blocks)
		}
	}
	l.blocks.dropSpare()
	l.settle()
	return l.closedSeq
}
