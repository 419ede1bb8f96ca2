package eventlog

import "sync"

// Log is what one process said. All methods may be called concurrently; only
// Writer.WaitRoom, Reader.Next and Owner.Next block. A log needs no closing: it
// has no goroutines, and its memory goes with the last reference to it.
type Log struct {
	limits Limits // as WithDefaults returned them

	mu sync.Mutex

	// Events and their memory, guarded by mu.
	records       deque
	exitedEarlier record // the exited event, once output around it was evicted
	exitedSeq     uint64 // 0: has not exited
	closedSeq     uint64 // 0: not closed
	streams       [streamEnd]*stream
	totalBytes    uint64 // ever appended, all streams
	retainedBytes int
	outputs       int // retained output events
	blocks        blocks
	batchBytes    int // event slices of cursors

	// Ownership and window, guarded by mu. What is unacknowledged is counted
	// only while paced.
	owner          *Owner
	held           bool
	acked          position // what precedes it was taken; kept after the owner left
	unackedBytes   int
	unackedEvents  int
	reservedBytes  int // in the buffers that writers have
	reservedEvents int
	openWriters    int

	// Cursors and those who wait, guarded by mu.
	observers int
	owners    int // including replaced ones that have not noticed
	readers   waiters
	writers   waiters
}

// New returns an empty log. It allocates no blocks: a process that says nothing
// costs a few hundred bytes.
func New(limits Limits) *Log {
	l := &Log{limits: limits.WithDefaults(), held: limits.Held}
	l.records.first, l.records.end = 1, 1
	l.acked.next = 1
	return l
}

// Append copies data into the log. It never blocks and ignores the owner's
// window: it is for tests and for notices that the server itself makes. It
// panics after AppendClosed.
func (l *Log) Append(id Stream, data []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stream(id)
	for len(data) > 0 {
		n := min(len(data), l.limits.chunkBytes())
		b, shared := l.appendBlock(s, n)
		start := b.used
		b.used += copy(b.buf[start:], data[:n])
		l.appendOutput(s, b, start, n)
		if !shared {
			l.blocks.unref(b)
		}
		data = data[n:]
		l.settle()
	}
}

// appendBlock returns a block with n bytes free: the stream's current one, or
// one of exactly that size when the writer is reading into the current one or
// its rest is too small to use and too large to give up.
func (l *Log) appendBlock(s *stream, n int) (b *block, shared bool) {
	if s.reservedBytes == 0 {
		if b := s.room(&l.blocks, l.limits.largestBlock()); b.free() >= n {
			return b, true
		}
	}
	return l.blocks.alloc(n), false
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

// AppendClosed ends the log and returns the last event's seq. Any append
// afterwards panics, and so does AppendClosed before AppendExited: a stream of
// events that ends without an exit would be a lie.
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
		offset: s.total, before: l.totalBytes,
		kind: Output, stream: s.id,
	})
	b.refs++
	s.total += uint64(n)
	l.totalBytes += uint64(n)
	l.retainedBytes += n
	l.outputs++
	s.keep(&l.blocks, b, start, n, l.limits.SnapshotBytes)
	if l.paced() {
		l.countUnacked(s, n, 1)
	}
}
