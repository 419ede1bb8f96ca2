package eventlog

// stream is the state of one stream, guarded by Log.mu. Head and tail are kept
// apart from the retained events so that one stream cannot evict another's.
type stream struct {
	id        Stream
	total     uint64 // bytes ever appended
	cur       *block // being filled; nil before the first byte and after the end
	nextBlock int    // size of the next block

	head      []span // the first SnapshotBytes
	headBytes int
	tail      []span // at least the last SnapshotBytes
	tailBytes int
	ends      ends // of an offloaded log, instead of head and tail

	unackedBytes   int
	unackedEvents  int
	reservedBytes  int // of the buffer of its writer; 0: none
	reservedEvents int
	writer         *Writer // nil: only Append writes
}

// span is a run of a stream inside one block, which it keeps alive.
type span struct {
	blk        *block
	start, end int
}

func (s span) len() int      { return s.end - s.start }
func (s span) bytes() []byte { return s.blk.buf[s.start:s.end:s.end] }

// share returns the bytes for use without the lock.
func (s span) share() []byte {
	s.blk.shared = true
	return s.bytes()
}

// currentBlock returns cur, or a new block if cur is full.
func (s *stream) currentBlock(a *blocks, largest int) *block {
	if s.cur != nil && !s.cur.full() {
		return s.cur
	}
	s.dropBlock(a)
	if s.nextBlock == 0 {
		s.nextBlock = min(firstBlockBytes, largest)
	}
	s.cur = a.alloc(s.nextBlock)
	return s.cur
}

func (s *stream) dropBlock(a *blocks) {
	if s.cur != nil {
		a.unref(s.cur)
		s.cur = nil
	}
}

// grow increases the size of the next block after a read of n bytes into a buffer of
// the given size, if more data was probably waiting.
func (s *stream) grow(n, buffer, largest int) {
	if n == buffer || n >= len(s.cur.buf)/2 && s.cur.full() {
		s.nextBlock = min(4*len(s.cur.buf), largest)
	}
}

// retainEnds adds n bytes of b from start to head and tail.
func (s *stream) retainEnds(a *blocks, b *block, start, n, snapshot int) {
	if h := min(n, snapshot-s.headBytes); h > 0 {
		s.head = extend(s.head, b, start, h)
		s.headBytes += h
	}
	s.tail = extend(s.tail, b, start, n)
	s.tailBytes += n
	for s.tailBytes-s.tail[0].len() >= snapshot {
		s.tailBytes -= s.tail[0].len()
		a.unref(s.tail[0].blk)
		s.tail[0] = span{}
		s.tail = s.tail[1:]
	}
}

func extend(spans []span, b *block, start, n int) []span {
	if len(spans) > 0 {
		last := &spans[len(spans)-1]
		if last.blk == b && last.end == start {
			last.end += n
			return spans
		}
	}
	b.refs++
	return append(spans, span{b, start, start + n})
}
