package eventlog

import (
	"cmp"
	"errors"
	"os"
	"sort"
	"sync"
	"syscall"
)

// bytesPerFileBlock bounds the index of a file: one block for so many bytes of its limit.
const (
	bytesPerFileBlock = 16 << 10
	minFileBlocks     = 16
)

// fileTier is the second tier of a log: a file for the output that retention is about to
// evict from memory and that nobody has acknowledged, while the log is not paced, and for all
// that a closed log retains. It is a ring of blocks: the oldest are overwritten.
type fileTier struct {
	files *Files // nil: there is no second tier
	// writing is held over the writing of a block, and locked before Log.mu, under which
	// the file is neither written nor read.
	writing sync.Mutex
	// full is why the file does not grow, and blocks are overwritten. Guarded by writing.
	full GapCause

	// Guarded by Log.mu.
	file      *os.File // nil: none was needed
	blocks    []fileBlock
	bytes     uint64   // of output in blocks
	size      int64    // of the file, counted in files
	ringEnd   int64    // of the latest block in the file
	next      position // after the latest event that was written or could not be
	lost      GapCause // why the events before next are missing, if they are and were not evicted
	discarded bool     // Discard was called
	users     int      // calls that use the file, beside the cursors
	taken     taken    // of the latest block that was taken
}

// taken is what the next block begins with if it follows.
type taken struct {
	seq     uint64            // after the last event
	offsets [streamEnd]uint64 // of each stream before seq
}

// active reports whether output goes to the file. Log.mu is held.
func (t *fileTier) active() bool { return t.files != nil && !t.discarded && t.files.perLog() > 0 }

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
// exceed the limits. Then no writer gets a buffer before a part is written.
func (l *Log) spillDue() bool {
	if l.window.paced || !l.tier.active() {
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
		err := l.writeFileBlock(block, data)
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

// offsetsAt returns the offset of each stream before an event, which is in memory. It looks at all later
// events if a stream has none among them.
func (l *Log) offsetsAt(seq uint64) (offsets [streamEnd]uint64) {
	found := 0
	for id, s := range l.streams {
		if s != nil {
			offsets[id] = s.total
			found++
		}
	}
	var seen [streamEnd]bool
	for ; seq < l.records.end && found > 0; seq++ {
		if r := l.records.at(seq); r.kind == Output && !seen[r.stream] {
			seen[r.stream] = true
			offsets[r.stream] = r.offset
			found--
		}
	}
	return offsets
}

// writeFileBlock writes a block into the ring. l.tier.writing is held.
func (l *Log) writeFileBlock(block *fileBlock, data []byte) error {
	t := &l.tier
	if err := l.openFile(); err != nil {
		return err
	}
	grown, refused := l.growFile(block.size)
	if !l.place(block) {
		return cmp.Or(refused, errFileSmall)
	}
	_, err := t.files.writeAt(t.file, data, block.offset)
	if err == nil || grown == 0 {
		return err
	}
	l.resizeFile(-grown)
	if t.full = causeOf(err); t.full == DiskFull && l.place(block) { // what the file has is used for the newest
		_, err = t.files.writeAt(t.file, data, block.offset)
	}
	return err
}

// openFile creates the file of the log, if it has none. l.tier.writing is held.
func (l *Log) openFile() error {
	if l.tier.file != nil {
		return nil
	}
	file, err := l.tier.files.create()
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tier.file = file
	return nil
}

// growFile makes space for size bytes after the latest block, if the limits and the disk
// permit, and returns by how much the file grows. The error is why it does not, unless the
// limit of the log is reached. l.tier.writing is held.
func (l *Log) growFile(size int64) (grown int64, refused error) {
	t := &l.tier
	end := t.ringEnd + size
	if end <= t.size {
		return 0, nil
	}
	if end > t.files.perLog() {
		t.full = Evicted
		return 0, nil
	}
	if err := t.files.grow(t.file, end-t.size); err != nil {
		t.full = causeOf(err)
		return 0, err
	}
	grown = end - t.size
	l.mu.Lock()
	t.size = end
	l.mu.Unlock()
	return grown, nil
}

// resizeFile changes what is counted for the file.
func (l *Log) resizeFile(by int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tier.size += by
	l.tier.files.count(0, by)
}

// place sets the offset of a block, after the latest or at the start of the file, and drops the
// blocks that it overwrites. It returns false if the file is too small. l.tier.writing is held.
func (l *Log) place(block *fileBlock) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := &l.tier
	if block.size > t.size {
		return false
	}
	block.offset = t.ringEnd
	dropped := false
	if t.ringEnd+block.size > t.size {
		block.offset = 0
		for len(t.blocks) > 0 && t.blocks[0].offset >= t.ringEnd {
			t.dropBlock()
			dropped = true
		}
	}
	for len(t.blocks) > 0 && t.blocks[0].offset < block.offset+block.size && t.blocks[0].offset+t.blocks[0].size > block.offset {
		t.dropBlock()
		dropped = true
	}
	switch {
	case !dropped:
	case len(t.blocks) > 0:
		t.blocks[0].cause = t.full
	default:
		block.cause = t.full
	}
	return true
}

// mostBlocks returns how many blocks the index may have.
func (t *fileTier) mostBlocks() int64 { return max(minFileBlocks, t.files.perLog()/bytesPerFileBlock) }

// dropBlock removes the oldest block from the index. Log.mu is held.
func (t *fileTier) dropBlock() {
	t.bytes -= t.blocks[0].bytes
	t.blocks = t.blocks[1:]
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
	l.closeFile()
	l.settle()
}

var errFileSmall = errors.New("a block of output is larger than output_file_bytes_per_process")

// causeOf returns why output is missing that could not be written.
func causeOf(err error) GapCause {
	switch {
	case err == nil, errors.Is(err, errFileSmall):
		return Evicted
	case errors.Is(err, errFilesFull), errors.Is(err, errFilesMany):
		return FilesFull
	case errors.Is(err, errDiskFull), errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return DiskFull
	}
	return WriteFailed
}

// find returns the first block with an event from seq on; nil: there is none. Log.mu is held.
func (t *fileTier) find(seq uint64) *fileBlock {
	i := sort.Search(len(t.blocks), func(i int) bool { return t.blocks[i].end().next > seq })
	if i == len(t.blocks) {
		return nil
	}
	return &t.blocks[i]
}

// before returns the last position at or before seq that the index knows. Log.mu is held.
func (t *fileTier) before(seq uint64) position {
	known := position{next: 1}
	i := sort.Search(len(t.blocks), func(i int) bool { return t.blocks[i].next > seq })
	if i > 0 {
		known = t.blocks[i-1].position
		if end := t.blocks[i-1].end(); end.next <= seq {
			known = end
		}
	}
	return known
}

// Discard gives the file back, once no cursor is open: output that is only there is evicted, and
// none is written to a file any more. It is for a log whose writers have ended and that nobody will
// own or read again. It may block on the disk. Calling it twice does nothing.
func (l *Log) Discard() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tier.discarded = true
	l.closeFile()
}

// closeFile closes the file of a discarded log that nobody uses.
func (l *Log) closeFile() {
	t := &l.tier
	if t.file == nil || !t.discarded || l.observers+l.owners+t.users > 0 {
		return
	}
	_ = t.file.Close()
	t.files.count(-1, -t.size)
	t.file, t.blocks, t.bytes, t.size = nil, nil, 0, 0
}
