package session

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/google/uuid"
)

// Sizes of the blocks of a spool: small ones waste less of a small spool, large
// ones take less memory to keep track of.
const (
	minSpoolBlock = 4 << 10
	maxSpoolBlock = 64 << 10
	spoolBlocks   = 256 // at least so many, if the spool is large enough
)

var (
	errSpoolFull   = errors.New("the spool is full")
	errSpoolSealed = errors.New("somebody else has taken the process")
)

// spool is a file without a name in which the output of one session's processes
// waits for its owner. It is made of blocks, which belong to the backlog of one
// process or are free. All methods may be called concurrently; files are read
// and written without the lock.
type spool struct {
	file       spoolFile
	blockBytes int64
	most       uint32            // blocks
	background func(func()) bool // runs what must not be done under a lock, or reports false

	mu   sync.Mutex
	free []uint32 // guarded by mu
	made uint32   // guarded by mu; blocks that were ever in use

	room chan struct{} // holds a token when blocks were given back, or a process taken away
}

// spoolFile is what a spool needs of an os.File.
type spoolFile interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	syscall.Conn
}

// newSpool makes a spool of at most size bytes in dir, which if empty is the
// directory for temporary files.
func newSpool(dir string, size int64, background func(func()) bool) (*spool, error) {
	if dir == "" {
		dir = os.TempDir()
	}
	file, err := openUnnamed(dir)
	if err != nil {
		return nil, err
	}
	block := min(max(size/spoolBlocks, minSpoolBlock), maxSpoolBlock) / minSpoolBlock * minSpoolBlock
	return &spool{file: file, blockBytes: block, most: uint32(min(size/block, 1<<32-1)),
		background: background, room: make(chan struct{}, 1)}, nil
}

// openTmpfile is O_TMPFILE, which package syscall does not name.
const openTmpfile = 0o20000000 | syscall.O_DIRECTORY

// openUnnamed makes a file that is gone when it is closed. File systems that
// cannot do without a name give it one for a moment.
func openUnnamed(dir string) (*os.File, error) {
	if file, err := os.OpenFile(dir, openTmpfile|os.O_RDWR, 0o600); err == nil {
		return file, nil
	}
	return openAndRemove(dir)
}

func openAndRemove(dir string) (*os.File, error) {
	path := filepath.Join(dir, "execwire-spool-"+uuid.NewString())
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := os.Remove(path); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// close gives the file up. What is being read or written fails.
func (s *spool) close() { _ = s.file.Close() }

// take returns n free blocks, or false. mu is held.
func (s *spool) take(n int) ([]uint32, bool) {
	if len(s.free)+int(s.most-s.made) < n {
		return nil, false
	}
	blocks := make([]uint32, 0, n)
	for range n {
		if last := len(s.free) - 1; last >= 0 {
			blocks = append(blocks, s.free[last])
			s.free = s.free[:last]
			continue
		}
		blocks = append(blocks, s.made)
		s.made++
	}
	return blocks, true
}

// give makes blocks free, and gives their room on the disk back where the file
// system can. Nobody may use them any more. mu is not held.
func (s *spool) give(blocks []uint32) {
	if len(blocks) == 0 {
		return
	}
	s.punch(blocks)
	s.mu.Lock()
	s.free = append(s.free, blocks...)
	s.mu.Unlock()
	s.changed()
}

// giveLater is give for a caller that holds locks.
func (s *spool) giveLater(blocks []uint32) {
	if len(blocks) > 0 {
		_ = s.background(func() { s.give(blocks) }) // not done only when all ends
	}
}

// punch frees the room of blocks. Without it the room is used again, not given
// back.
func (s *spool) punch(blocks []uint32) {
	const keepSize, punchHole = 0x1, 0x2
	conn, err := s.file.SyscallConn()
	if err != nil {
		return
	}
	_ = conn.Control(func(fd uintptr) {
		for len(blocks) > 0 {
			n := 1
			for n < len(blocks) && blocks[n] == blocks[n-1]+1 {
				n++
			}
			if syscall.Fallocate(int(fd), keepSize|punchHole, int64(blocks[0])*s.blockBytes, int64(n)*s.blockBytes) != nil {
				return
			}
			blocks = blocks[n:]
		}
	})
}

// changed tells a spooler that waits to look again.
func (s *spool) changed() {
	select {
	case s.room <- struct{}{}:
	default:
	}
}

// writeAt writes data to the stretch of blocks that begins skip bytes into the
// first.
func (s *spool) writeAt(blocks []uint32, skip int64, data []byte) error {
	return s.each(blocks, skip, data, s.file.WriteAt)
}

// readAt fills data from there.
func (s *spool) readAt(blocks []uint32, skip int64, data []byte) error {
	return s.each(blocks, skip, data, s.file.ReadAt)
}

func (s *spool) each(blocks []uint32, skip int64, data []byte, move func([]byte, int64) (int, error)) error {
	for i := 0; len(data) > 0; i++ {
		n := min(int64(len(data)), s.blockBytes-skip)
		if _, err := move(data[:n], int64(blocks[i])*s.blockBytes+skip); err != nil {
			return err
		}
		data, skip = data[n:], 0
	}
	return nil
}
