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
	files *Files      // nil: there is no second tier
	mu    *sync.Mutex // Log.mu
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
	users     int      // open cursors, and calls that use the file
	taken     taken    // of the latest block that was taken
}

// taken is what the next block begins with if it follows.
type taken struct {
	seq     uint64            // after the last event
	offsets [streamEnd]uint64 // of each stream before seq
}

// active reports whether output goes to the file. Log.mu is held.
func (t *fileTier) active() bool { return t.files != nil && !t.discarded && t.files.perLog() > 0 }

// write writes a block into the ring. writing is held.
func (t *fileTier) write(block *fileBlock, data []byte) error {
	grown, refused := t.grow(block.size)
	if !t.place(block) {
		return cmp.Or(refused, errFileSmall)
	}
	_, err := t.files.writeAt(t.file, data, block.offset)
	if err == nil || grown == 0 {
		return err
	}
	t.resize(-grown)
	if t.full = causeOf(err); t.full == DiskFull && t.place(block) { // what the file has is used for the newest
		_, err = t.files.writeAt(t.file, data, block.offset)
	}
	return err
}

// open creates the file of the log, if it has none. writing is held.
func (t *fileTier) open() error {
	if t.file != nil {
		return nil
	}
	file, err := t.files.create()
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.file = file
	return nil
}

// grow makes space for size bytes after the latest block, in a new file if there is none, if the
// limits and the disk permit, and returns by how much the file grows. The error is why it does not,
// unless the limit of the log is reached. writing is held.
func (t *fileTier) grow(size int64) (grown int64, refused error) {
	end := t.ringEnd + size
	if end <= t.size {
		return 0, nil
	}
	if end > t.files.perLog() {
		t.full = Evicted
		return 0, nil
	}
	if err := t.open(); err != nil {
		return 0, err
	}
	if err := t.files.grow(t.file, end-t.size); err != nil {
		t.full = causeOf(err)
		t.closeEmpty()
		return 0, err
	}
	grown = end - t.size
	t.mu.Lock()
	t.size = end
	t.mu.Unlock()
	return grown, nil
}

// resize changes what is counted for the file.
func (t *fileTier) resize(by int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.size += by
	t.files.count(0, by)
}

// place sets the offset of a block, after the latest or at the start of the file, and drops the
// blocks that it overwrites. It returns false if the file is too small. writing is held.
func (t *fileTier) place(block *fileBlock) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
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

// close closes the file of a discarded log that nobody uses. Log.mu is held.
func (t *fileTier) close() {
	if t.file == nil || !t.discarded || t.users > 0 {
		return
	}
	_ = t.file.Close()
	t.files.count(-1, -t.size)
	t.file, t.blocks, t.bytes, t.size = nil, nil, 0, 0
}

// reserve makes the file so large that size bytes follow the latest block, if the limits and
// the disk permit. writing is held.
func (t *fileTier) reserve(size int64) bool {
	_, _ = t.grow(size)
	return t.ringEnd+size <= t.size
}

// closeEmpty closes a file without space, which would take the place of another. writing is held.
func (t *fileTier) closeEmpty() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.size == 0 {
		_ = t.file.Close()
		t.files.count(-1, 0)
		t.file = nil
	}
}

// release ends a use of the file. Log.mu is held.
func (t *fileTier) release() {
	t.users--
	t.close()
}
