package fsops

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"path"

	"golang.org/x/sys/unix"
)

// directoryMode is that of new directories, without the bits of the umask.
const directoryMode = 0o777

// CreateDirectory makes a directory. If recursive, it makes missing parents too, and a directory
// that exists is as good. A directory that is made has exactly these permission bits, of 07777; nil:
// 0777 without the bits of the umask, as its parents.
func CreateDirectory(p string, recursive bool, permissions *uint32, options ...PathOption) error {
	t, err := locateIn("make directory", p, options)
	if KindOf(err) == NotFound && recursive && path.Clean(p) != "/" {
		if err := CreateDirectory(path.Dir(path.Clean(p)), true, nil, options...); err != nil {
			return err
		}
		t, err = locateIn("make directory", p, options)
	}
	if err != nil {
		return err
	}
	defer t.dir.release()
	mode := uint32(directoryMode)
	if permissions != nil {
		mode = 0o700
	}
	if err := unix.Mkdirat(int(t.dir), t.name, mode); err != nil {
		return t.mkdirError(recursive, err)
	}
	if permissions == nil {
		return nil
	}
	fd, err := openAt(t.dir, t.name, openDirRead|unix.O_NOFOLLOW, 0)
	if err != nil {
		return failed("make directory", t.path, err)
	}
	defer fd.release()
	if err := unix.Fchmod(int(fd), *permissions); err != nil {
		return failed("make directory", t.path, err)
	}
	return nil
}

// mkdirError returns the typed error of a mkdir, or nil if the directory exists and may.
func (t target) mkdirError(recursive bool, err error) error {
	m, statErr := t.stat()
	switch {
	case recursive && statErr == nil && m.Type == Directory:
		return nil
	case t.noLinks && statErr == unix.ELOOP:
		err = statErr
	}
	return t.failed("make directory", err)
}

// Entry is a name in a directory.
type Entry struct {
	// Name is as it is on disk, and need not be UTF-8.
	Name string
	// Type is what the name stands for.
	Type Type
	// Target is Type, or the type of the target of a link: 0 if that is missing, a loop, or not
	// accessible.
	Target Type
}

// MaxEntries is the most entries that are reported at once.
const MaxEntries = 1000

// ReadDirectory passes the entries of a directory, without "." and "..", to tell, in no particular
// order and at most [MaxEntries] at once. It returns the first error of tell, which owns the slices.
func ReadDirectory(ctx context.Context, p string, tell func([]Entry) error, options ...PathOption) error {
	t, err := locate("list", p, options)
	if err != nil {
		return err
	}
	defer t.release()
	fd, err := t.open(openDirRead, 0)
	if err != nil {
		return t.failed("list", err)
	}
	defer fd.release()
	list := newListing(fd, 32<<10)
	for {
		entries, err := list.some(MaxEntries)
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return failed("list", t.path, err)
		}
		for i := range entries {
			entries[i].resolve(fd)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := tell(entries); err != nil {
			return err
		}
	}
}

// resolve fills in the types that the listing did not contain.
func (e *Entry) resolve(dir descriptor) {
	if e.Type == 0 {
		m, _ := statAt(dir, e.Name, unix.AT_SYMLINK_NOFOLLOW)
		e.Type = m.Type
	}
	if e.Target = e.Type; e.Type == Symlink {
		m, _ := statAt(dir, e.Name, 0)
		e.Target = m.Type
	}
}

// listing reads the entries of a directory from its descriptor.
type listing struct {
	fd      descriptor
	buffer  []byte
	pending []byte // of the buffer
}

func newListing(fd descriptor, bufferBytes int) *listing {
	return &listing{fd: fd, buffer: make([]byte, bufferBytes)}
}

// some returns the next entries, at most so many, with the types that the
// directory knows; io.EOF when there are no more.
func (l *listing) some(most int) ([]Entry, error) {
	var entries []Entry
	for len(entries) < most {
		e, err := l.next()
		if err == io.EOF && len(entries) > 0 {
			return entries, nil
		}
		if err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// next returns the next entry.
func (l *listing) next() (Entry, error) {
	for {
		if len(l.pending) == 0 {
			n, err := retried(func() (int, error) { return unix.Getdents(int(l.fd), l.buffer) })
			if err != nil {
				return Entry{}, err
			}
			if n == 0 {
				return Entry{}, io.EOF
			}
			l.pending = l.buffer[:n]
		}
		// A record is inode u64, place u64, its length u16, type u8, and the name
		// up to a zero.
		const nameAt = 19
		record := l.pending[:binary.NativeEndian.Uint16(l.pending[16:])]
		l.pending = l.pending[len(record):]
		name, _, _ := bytes.Cut(record[nameAt:], []byte{0})
		if s := string(name); s != "." && s != ".." {
			return Entry{Name: s, Type: typeOf(uint32(record[18]) << 12)}, nil
		}
	}
}

// rewind restarts the listing with the current entries.
func (l *listing) rewind() error {
	l.pending = nil
	_, err := unix.Seek(int(l.fd), 0, io.SeekStart)
	return err
}
