package eventlog

import "sync"

// Log is the output and the end of one process. All methods may be called
// concurrently; only Writer.WaitSpace, Reader.Next and Owner.Next wait for others. A log
// has no goroutines, and its memory goes with the last reference to it. Its file, if it
// has one, goes with Discard: only Writer.WaitSpace, the cursors and Discard use the disk.
type Log struct {
	limits Limits // as WithDefaults returned them

	mu sync.Mutex

	// Events and their memory, guarded by mu.
	records       deque
	evictedExit   record // the exited event, once output after it was evicted
	exitedSeq     uint64 // 0: has not exited
	closedSeq     uint64 // 0: not closed
	streams       [streamEnd]*stream
	totalBytes    uint64 // ever appended, all streams
	time          int64  // of the last output, Unix time in ns
	retainedBytes int
	outputs       int // retained output events
	blocks        blocks
	batchBytes    int // event slices of cursors

	// Ownership and window, guarded by mu. The log is owned if there is an owner and
	// the window is paced, held if only the latter, and was freed if only the former.
	owner  *Owner
	window window

	tier      fileTier
	offloaded bool // all output is in the file, and none is retained; guarded by mu

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
	l := &Log{limits: limits.WithDefaults(), tier: fileTier{files: f}}
	l.window = window{limits: &l.limits, paced: limits.Held, acked: position{next: 1}}
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

// stream returns the state of a stream, made on first use.
func (l *Log) stream(id Stream) *stream {
	if id == 0 || id >= streamEnd {
		panic("eventlog: unknown " + id.String())
	}
	if l.streams[id] == nil {
		l.streams[id] = &stream{id: id}
	}
	return l.streams[id]
}

func (l *Log) push(r record) uint64 {
	if l.closedSeq != 0 {
		panic("eventlog: appended after closed")
	}
	l.records.push(r)
	return l.records.end - 1
}

// appendOutput adds one event for n bytes of b, at most one chunk.
func (l *Log) appendOutput(s *stream, b *block, start, n int) {
	l.push(record{
		blk: b, start: uint32(start), n: uint16(n),
		offset: s.total, before: l.totalBytes, time: l.time,
		kind: Output, stream: s.id,
	})
	b.refs++
	s.total += uint64(n)
	l.totalBytes += uint64(n)
	l.retainedBytes += n
	l.outputs++
	s.retainEnds(&l.blocks, b, start, n, l.limits.SnapshotBytes)
	if l.window.paced {
		l.window.countUnacked(s, n, 1)
	}
}
