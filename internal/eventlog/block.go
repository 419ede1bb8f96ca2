package eventlog

// block is the memory of output of one stream. Bytes below used are immutable;
// the writer may be reading into those above. All fields but the bytes are
// guarded by Log.mu.
type block struct {
	buf   []byte
	used  int
	refs  int    // retained events, head and tail spans, and being the current block
	pins  int    // last batches of cursors
	batch uint64 // the last batch that pinned it; each pins it once
	// shared is set once a reader may refer to the bytes for longer than refs and pins
	// count. They are not used for other output then.
	shared bool
}

func (b *block) free() int { return len(b.buf) - b.used }

// full reports whether a new block is due. At most an eighth of a block is left
// unused, which the memory bound relies on.
func (b *block) full() bool { return b.free() < min(minFreeBytes, max(1, len(b.buf)/8)) }

// blocks counts the capacity of the blocks that are alive.
type blocks struct {
	held     int // bytes of capacity
	stranded int // of these, only alive because a batch pins them
	batches  uint64
	// spare is the memory of a block that nothing refers to, so that a steady flow of
	// output allocates nothing and stays in the cache; nil: there is none.
	spare []byte
	// spareSize is the size of the largest blocks, of which a spare is kept; 0: of none,
	// because no output follows.
	spareSize int
}

func (a *blocks) alloc(n int) *block {
	if a.spare != nil && n == a.spareSize {
		b := &block{buf: a.spare, refs: 1}
		a.spare = nil
		return b
	}
	a.held += n
	return &block{buf: make([]byte, n), refs: 1}
}

// free is called when nothing refers to b.
func (a *blocks) free(b *block) {
	if a.spare == nil && !b.shared && len(b.buf) == a.spareSize {
		a.spare = b.buf
		return
	}
	a.held -= len(b.buf)
}

// dropSpare is called when no output follows.
func (a *blocks) dropSpare() {
	a.held -= len(a.spare)
	a.spare, a.spareSize = nil, 0
}

func (a *blocks) unref(b *block) {
	b.refs--
	switch {
	case b.refs > 0:
	case b.pins > 0:
		a.stranded += len(b.buf)
	default:
		a.free(b)
	}
}

func (a *blocks) unpin(b *block) {
	b.pins--
	if b.pins == 0 && b.refs == 0 {
		a.stranded -= len(b.buf)
		a.free(b)
	}
}
