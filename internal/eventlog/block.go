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
}

func (a *blocks) alloc(n int) *block {
	a.held += n
	return &block{buf: make([]byte, n), refs: 1}
}

func (a *blocks) unref(b *block) {
	b.refs--
	switch {
	case b.refs > 0:
	case b.pins > 0:
		a.stranded += len(b.buf)
	default:
		a.held -= len(b.buf)
	}
}

func (a *blocks) unpin(b *block) {
	b.pins--
	if b.pins == 0 && b.refs == 0 {
		a.stranded -= len(b.buf)
		a.held -= len(b.buf)
	}
}
