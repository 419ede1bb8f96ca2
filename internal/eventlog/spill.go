package eventlog

import "sync"

// unsaved returns the seq of the first event in memory that the file is still to get. Once the log is
// closed, that is any that the file does not have, whether it was acknowledged or could not be
// written earlier.
func (l *Log) unsaved() uint64 {
	seq := l.records.first
	if l.closedSeq == 0 {
		return max(seq, l.tier.next.next, l.window.acked.next)
	}
	if n := len(l.tier.blocks); n > 0 {
		seq = max(seq, l.tier.blocks[n-1].end().next)
	}
	return seq
}

// mustSave reports whether the first event has to be written to the file before it is evicted.
// spillDue is true before the limits are exceeded.
func (l *Log) mustSave() bool {
	return l.records.first >= l.unsaved() && l.tier.active() &&
		l.retainedBytes <= l.limits.RetainedBytes && l.outputs <= l.limits.RetainedEvents
}

// spillDue reports whether so much output is unsaved that, with a commit of each writer, it might
// exceed the limits. Then no writer gets a buffer before a part is written. A closed log is moved by
// Offload only.
func (l *Log) spillDue() bool {
	if l.window.paced || l.closedSeq != 0 || !l.tier.active() {
		return false
	}
	writers := max(1, l.window.openWriters)
	seq := l.unsaved()
	bytes := l.totalBytes - l.after(seq-1).before
	return bytes > uint64(max(0, l.limits.RetainedBytes-writers*l.limits.bufferBytes())) ||
		l.records.end-seq > uint64(max(0, l.limits.RetainedEvents-2*writers))
}

// spill writes output to the file while it is due. It blocks on the disk, without a lock that
// readers or writers of memory need.
func (l *Log) spill() {
	l.mu.Lock()
	due := l.spillDue()
	l.mu.Unlock()
	if !due {
		return
	}
	l.tier.writing.Lock()
	defer l.tier.writing.Unlock()
	buf := fileBuffers.Get().(*[maxFileBlock]byte)
	defer fileBuffers.Put(buf)
	for {
		block, data := l.takeFileBlock(buf[:0], l.spillDue)
		if block == nil {
			return
		}
		err := l.tier.write(block, data)
		l.saved(block, err)
	}
}

var fileBuffers = sync.Pool{New: func() any { return new([maxFileBlock]byte) }}

// takeFileBlock encodes the oldest unsaved output, if any is due. l.tier.writing is held.
func (l *Log) takeFileBlock(buf []byte, due func() bool) (*fileBlock, []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !due() {
		return nil, nil
	}
	seq := l.unsaved()
	if seq > l.tier.next.next {
		l.tier.lost = Evicted // those before it were acknowledged while the log was open
	}
	offsets := l.tier.taken.offsets
	if seq != l.tier.taken.seq {
		offsets = l.offsetsAt(seq)
	}
	for l.records.at(seq).kind != Output {
		seq++ // there is output after it, or nothing would be due
	}
	block, most := new(fileBlock), l.limits.fileBlockBytes()
	first := l.records.at(seq)
	last := first.time
	buf = block.begin(buf, seq, first, &offsets)
	for ; seq < l.records.end; seq++ {
		r := l.records.at(seq)
		if r.kind != Output || block.events > 0 && len(buf)+maxEventHeader+int(r.n) > most {
			break
		}
		buf = block.add(buf, r, last)
		last, offsets[r.stream] = r.time, r.offset+uint64(r.n)
	}
	l.tier.taken = taken{seq, offsets}
	block.size, block.cause = int64(len(buf)), l.tier.lost
	return block, buf
}

// saved is called after a block was written, or could not be. l.tier.writing is held.
func (l *Log) saved(block *fileBlock, err error) {
	t := &l.tier
	t.files.noteWritten(err)
	l.mu.Lock()
	defer l.mu.Unlock()
	t.next, t.lost = block.end(), causeOf(err)
	if err == nil && !t.discarded {
		t.ringEnd = block.offset + block.size
		t.blocks = append(t.blocks, *block)
		t.bytes += block.bytes
		for int64(len(t.blocks)) > t.mostBlocks() {
			t.dropBlock()
			t.blocks[0].cause = Evicted
		}
	}
	l.tier.close()
	l.settle()
}

// Discard gives the file back, once no cursor is open: output that is only there is evicted, and
// none is written to a file any more. It is for a log whose writers have ended and that nobody will
// own or read again. It may block on the disk. Calling it twice does nothing.
func (l *Log) Discard() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tier.discarded = true
	l.tier.close()
}
