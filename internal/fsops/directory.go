package fsops

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"path"
	"slices"

	"golang.org/x/sys/unix"
)

// directoryMode is that of new directories, without the bits of the umask.
const directoryMode = 0o777

// CreateDirectory makes a directory. If recursive, it makes missing parents too,
// and a directory that exists is as good.
func CreateDirectory(p string, recursive bool, how ...How) error {
	p, err := cleaned("make directory", p)
	if err != nil {
		return err
	}
	if slices.Contains(how, NoSymlinks) {
		return makeWithoutLinks(p, recursive)
	}
	return makeDirectory(p, recursive)
}

// CreateDirectoryWith is [CreateDirectory] of one that has exactly these permission
// bits, of 07777, if it is made.
func CreateDirectoryWith(p string, recursive bool, permissions uint32, how ...How) error {
	p, err := cleaned("make directory", p)
	if err != nil {
		return err
	}
	if recursive {
		if err := CreateDirectory(path.Dir(p), true, how...); err != nil {
			return err
		}
	}
	t, err := locateIn("make directory", p, how)
	if err != nil {
		return err
	}
	defer t.dir.release()
	if err := unix.Mkdirat(int(t.dir), t.name, 0o700); err != nil {
		return t.notMade(recursive, err)
	}
	fd, err := openAt(t.dir, t.name, asDirectory|unix.O_NOFOLLOW, 0)
	if err != nil {
		return failed("make directory", p, err)
	}
	defer fd.release()
	if err := unix.Fchmod(int(fd), permissions); err != nil {
		return failed("make directory", p, err)
	}
	return nil
}

// makeWithoutLinks is makeDirectory for a path that may have no links in it.
func makeWithoutLinks(p string, recursive bool) error {
	t, err := locateIn("make directory", p, []How{NoSymlinks})
	if KindOf(err) == NotFound && recursive {
		if err := makeWithoutLinks(path.Dir(p), true); err != nil {
			return err
		}
		t, err = locateIn("make directory", p, []How{NoSymlinks})
	}
	if err != nil {
		return err
	}
	defer t.dir.release()
	if err := unix.Mkdirat(int(t.dir), t.name, directoryMode); err != nil {
		return t.notMade(recursive, err)
	}
	return nil
}

// notMade types why a directory was not made, unless one that exists is as good.
func (t target) notMade(recursive bool, err error) error {
	m, statErr := t.stat()
	switch {
	case recursive && statErr == nil && m.Type == Directory:
		return nil
	case t.noLinks && statErr == unix.ELOOP:
		err = statErr
	}
	return t.failed("make directory", err)
}

func makeDirectory(p string, recursive bool) error {
	err := unix.Mkdir(p, directoryMode)
	if err == unix.ENOENT && recursive && p != "/" {
		if err := makeDirectory(path.Dir(p), true); err != nil {
			return err
		}
		err = unix.Mkdir(p, directoryMode)
	}
	if err == nil {
		return nil
	}
	if m, statErr := statAt(unix.AT_FDCWD, p, 0); recursive && statErr == nil && m.Type == Directory {
		return nil
	}
	return failed("make directory", p, err)
}

// Entry is a name in a directory.
type Entry struct {
	// Name is as it is on disk, and need not be UTF-8.
	Name string
	// Type is what the name stands for.
	Type Type
	// Target is what the name leads to: Type, or the type of the target of a
	// link. Zero if it leads to nothing, in a circle, or where we may not look.
	Target Type
}

// MaxEntries is the most entries that are told at once.
const MaxEntries = 1000

// ReadDirectory tells the entries of a directory without "." and "..", in no
// particular order, at most [MaxEntries] at once, until tell fails, which it
// returns. What tell gets is its own.
func ReadDirectory(ctx context.Context, p string, tell func([]Entry) error, how ...How) error {
	p, err := cleaned("list", p)
	if err != nil {
		return err
	}
	t, err := locate("list", p, how)
	if err != nil {
		return err
	}
	defer t.release()
	fd, err := t.open(asDirectory, 0)
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
			return failed("list", p, err)
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

// resolve finds out what the listing did not say.
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

// rewind begins again, with what is there now.
func (l *listing) rewind() error {
	l.pending = nil
	_, err := unix.Seek(int(l.fd), 0, io.SeekStart)
	return err
}
