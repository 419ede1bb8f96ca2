// Package waitread reads files that are not in Go's poller, such as most standard input, so
// that a Read can be interrupted and loses nothing.
package waitread

import (
	"errors"
	"os"
	"sync"
	"syscall"
)

// ErrInterrupted is the error of an interrupted Read.
var ErrInterrupted = errors.New("interrupted")

// Reader reads a file. [New] returns an error on systems, and for files, where a Read cannot
// be interrupted.
type Reader struct {
	file *os.File
	raw  syscall.RawConn
	wake wake

	once sync.Once
}

// New returns a reader of file, which nothing else may read meanwhile.
func New(file *os.File) (*Reader, error) {
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, err
	}
	r := &Reader{file: file, raw: raw}
	if r.wake, err = newWake(); err != nil {
		return nil, err
	}
	return r, nil
}

// Read implements io.Reader. It blocks until the file is readable. One goroutine may call it.
func (r *Reader) Read(p []byte) (int, error) {
	for {
		if err := r.wait(); err != nil {
			return 0, err
		}
		n, err := r.file.Read(p)
		// Another process with the same open file description may have set O_NONBLOCK,
		// and may have read the data.
		if !errors.Is(err, syscall.EAGAIN) {
			return n, err
		}
	}
}

// wait blocks until the file is readable or the reader is interrupted.
func (r *Reader) wait() error {
	var interrupted bool
	var waitErr error
	err := r.raw.Control(func(fd uintptr) { interrupted, waitErr = r.wake.waitWith(int(fd)) })
	switch {
	case err != nil:
		return err
	case waitErr != nil:
		return waitErr
	case interrupted:
		return ErrInterrupted
	}
	return nil
}

// Interrupt makes a pending Read and every later one fail with [ErrInterrupted].
func (r *Reader) Interrupt() { r.wake.set() }

// Release frees what the reader uses; the file stays open. No other call may follow, and no
// Read may be pending.
func (r *Reader) Release() { r.once.Do(r.wake.close) }
