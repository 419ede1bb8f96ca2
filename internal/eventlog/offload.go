package eventlog

// offloadShare is the part of RetainedBytes, 1/offloadShare, that a log must have in memory to be
// offloaded: less is not worth a descriptor.
const offloadShare = 8

// ends are where the file has the first and the last bytes of a stream of an offloaded log, at most
// SnapshotBytes each. They may overlap.
type ends struct {
	offset     int64 // of the first bytes, which the last follow
	head, tail int   // bytes
}

// Offload moves the output of a closed log from memory to its file, so that the record of a
// finished process costs little memory. Cursors and Snapshot read it there. It does nothing if
// Stats.CanOffload is not set, or if the file cannot have all of the output. It blocks on the disk, without
// a lock that readers need.
func (l *Log) Offload() {
	t := &l.tier
	t.writing.Lock()
	defer t.writing.Unlock()
	l.mu.Lock()
	needed := l.offloadSize()
	if needed > 0 {
		t.users++
		defer func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			t.release()
		}()
	}
	l.mu.Unlock()
	if needed == 0 || !t.reserve(needed) {
		return
	}
	end, err := l.saveRest()
	if err != nil {
		t.files.noteWritten(err) // what memory has stays there
	}
	t.resize(end - t.size)
}

// offloadSize returns the bytes that the file needs for what only memory has; 0: there is too
// little of it, or more may be written, or an owner may come back, or the file has no space after
// its latest block, or lacks output before that. Log.mu is held.
func (l *Log) offloadSize() int64 {
	t := &l.tier
	if l.offloaded || l.closedSeq == 0 || l.window.paced || !t.active() || l.blocks.held < l.limits.RetainedBytes/offloadShare ||
		len(t.blocks) > 0 && t.blocks[0].offset >= t.ringEnd || !t.isCompleteFrom(l.after(l.records.first-1)) {
		return 0
	}
	seq := l.unsaved()
	encoded := int64(l.totalBytes-l.after(seq-1).before) + int64(l.records.end-seq)*maxEventHeader
	blocks := 3 + 2*encoded/int64(l.limits.fileBlockBytes()) // two of them are together more than one can have
	if int64(len(t.blocks))+blocks > t.mostBlocks() {
		return 0
	}
	size := encoded + blocks*maxFileHeader
	for _, s := range l.streams {
		if s != nil {
			size += 2 * int64(min(s.total, uint64(l.limits.SnapshotBytes)))
		}
	}
	return size
}

// isCompleteFrom reports whether the file has all output between a position and its latest block.
// Log.mu is held.
func (t *fileTier) isCompleteFrom(p position) bool {
	for i := len(t.blocks) - 1; i >= 0 && t.blocks[i].before > p.before; i-- {
		if i == 0 || t.blocks[i-1].end().before != t.blocks[i].before {
			return false
		}
	}
	return true
}

// saveRest writes what the file does not have, and evicts it. It returns the end of the file.
// l.tier.writing is held.
func (l *Log) saveRest() (end int64, err error) {
	t := &l.tier
	buf := fileBuffers.Get().(*[maxFileBlock]byte)
	defer fileBuffers.Put(buf)
	hasUnsaved := func() bool { return !t.discarded && l.totalBytes > l.after(l.unsaved()-1).before }
	for block, data := l.takeFileBlock(buf[:0], hasUnsaved); block != nil; block, data = l.takeFileBlock(buf[:0], hasUnsaved) {
		if err := t.write(block, data); err != nil {
			return t.ringEnd, err
		}
		l.saved(block, nil)
	}
	var saved [streamEnd]ends
	end = t.ringEnd
	for id, s := range l.streams {
		if s == nil || s.total == 0 {
			continue
		}
		l.mu.Lock()
		state := s.state(0, l.limits.SnapshotBytes)
		l.mu.Unlock()
		if _, err := t.files.writeAt(t.file, append(state.Head, state.Tail...), end); err != nil {
			return t.ringEnd, err
		}
		saved[id] = ends{end, len(state.Head), len(state.Tail)}
		end += int64(len(state.Head) + len(state.Tail))
	}
	l.dropMemory(saved)
	return end, nil
}

// dropMemory evicts everything that the file has.
func (l *Log) dropMemory(saved [streamEnd]ends) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.window.paced || l.tier.discarded {
		return // it has an owner since
	}
	for id, s := range l.streams {
		if s != nil {
			s.dropEnds(&l.blocks)
			s.ends = saved[id]
		}
	}
	l.offloaded = true
	l.settle()
}

// dropEnds drops head and tail.
func (s *stream) dropEnds(a *blocks) {
	for _, of := range [][]span{s.head, s.tail} {
		for _, p := range of {
			a.unref(p.blk)
		}
	}
	s.head, s.headBytes, s.tail, s.tailBytes = nil, 0, nil, 0
}

// loaded returns a stream with its ends. It reads them from the file if they are there, and unlocks
// Log.mu, which is held, in the meantime. If the file cannot be read they are missing.
func (t *fileTier) loaded(s *stream) *stream {
	if s.ends == (ends{}) || t.file == nil {
		return s
	}
	file, at := t.file, s.ends
	t.users++
	t.mu.Unlock()
	b := &block{buf: make([]byte, at.head+at.tail)}
	_, err := t.files.readAt(file, b.buf, at.offset)
	t.mu.Lock()
	t.release()
	if err != nil {
		return s
	}
	return &stream{
		id: s.id, total: s.total,
		head: []span{{b, 0, at.head}}, headBytes: at.head,
		tail: []span{{b, at.head, at.head + at.tail}}, tailBytes: at.tail,
	}
}
