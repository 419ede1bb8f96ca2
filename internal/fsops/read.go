package fsops

import (
	"context"
	"io"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// chunkBytes is how much is read or written between checks of the context.
const chunkBytes = 1 << 20

// File is a regular file that is open for reading. It is for one goroutine.
type File struct {
	fd       descriptor
	path     string
	metadata Metadata
	offset   int64
}

// Open opens a regular file. It rejects other files, without blocking on them, with IsADirectory or
// NotRegular.
func Open(path string, options ...PathOption) (*File, error) { return open(path, 0, options) }

// open is Open with further flags.
func open(path string, flags int, options []PathOption) (*File, error) {
	t, err := locate("read", path, options)
	if err != nil {
		return nil, err
	}
	defer t.release()
	return t.openFile(flags)
}

func (t target) openFile(flags int) (*File, error) {
	path := t.path
	if t.hasType(FIFO, Socket, CharacterDevice, BlockDevice) {
		return nil, notRegular("read", path)
	}
	fd, err := t.open(commonFlags|unix.O_RDONLY|flags, 0)
	if err != nil {
		return nil, t.openError("read", err)
	}
	f := &File{fd: fd, path: path}
	if f.metadata, err = fd.stat(); err == nil && f.metadata.Type == Regular {
		return f, nil
	}
	fd.release()
	switch {
	case err != nil:
		return nil, failed("read", path, err)
	case f.metadata.Type == Directory:
		return nil, newError(IsADirectory, "read", path, "it is a directory")
	}
	return nil, notRegular("read", path)
}

// Metadata describes the file as it was when it was opened.
func (f *File) Metadata() Metadata { return f.metadata }

// Want fails with Changed if the file has another version.
func (f *File) Want(version string) error {
	if f.metadata.Version() != version {
		return newError(Changed, "read", f.path, "it has another version than was asked for: look at it again")
	}
	return nil
}

// Changed reports whether the file has another version than when it was opened.
func (f *File) Changed() (bool, error) {
	m, err := f.fd.stat()
	if err != nil {
		return false, failed("read", f.path, err)
	}
	return m.Version() != f.metadata.Version(), nil
}

// Unchanged fails with Changed if the size or the modification time differs from when the file was
// opened. A removal or a replacement of its path is no change.
func (f *File) Unchanged() error {
	m, err := f.fd.stat()
	switch {
	case err != nil:
		return failed("read", f.path, err)
	case m.Size != f.metadata.Size || !m.ModifyTime.Equal(f.metadata.ModifyTime):
		return newError(Changed, "read", f.path, "it was changed while it was read: try again")
	}
	return nil
}

// Detach returns the open file as an *os.File, which the caller closes. Only Metadata and Close may
// be called afterwards.
func (f *File) Detach() *os.File {
	file := os.NewFile(uintptr(f.fd), f.path)
	f.fd = -1
	return file
}

// Skip sets the offset of the next Read.
func (f *File) Skip(offset int64) { f.offset = offset }

// Read implements io.Reader.
func (f *File) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if space := math.MaxInt64 - f.offset; space < int64(len(p)) { // the kernel rejects larger offsets
		p = p[:space]
	}
	n, err := f.fd.readAt(p, f.offset)
	switch {
	case err != nil:
		return 0, failed("read", f.path, err)
	case n == 0:
		return 0, io.EOF
	}
	f.offset += int64(n)
	return n, nil
}

// Close releases the file, unless it was detached. It must be called once.
func (f *File) Close() {
	if f.fd >= 0 {
		f.fd.release()
	}
}

// ReadFile returns a regular file of at most limit bytes; a larger one is
// TooLarge.
func ReadFile(ctx context.Context, path string, limit int, options ...PathOption) ([]byte, Metadata, error) {
	f, err := Open(path, options...)
	if err != nil {
		return nil, Metadata{}, err
	}
	defer f.Close()
	if f.metadata.Size > int64(limit) {
		return nil, Metadata{}, f.tooLarge(limit)
	}
	// One byte more than there should be, to see the end without growing.
	data := make([]byte, 0, max(f.metadata.Size, 511)+1)
	for {
		if ctx.Err() != nil {
			return nil, Metadata{}, context.Cause(ctx)
		}
		if len(data) == cap(data) {
			data = append(data, 0)[:len(data)]
		}
		n, err := f.Read(data[len(data):min(cap(data), len(data)+chunkBytes)])
		switch {
		case err == io.EOF:
			return data, f.metadata, nil
		case err != nil:
			return nil, Metadata{}, err
		}
		if data = data[:len(data)+n]; len(data) > limit {
			return nil, Metadata{}, f.tooLarge(limit)
		}
	}
}

func (f *File) tooLarge(limit int) error {
	return newError(TooLarge, "read", f.path, "it is larger than what is read at once: read it in pieces").withLimit(int64(limit))
}
