package fsops

import (
	"context"
	"math"
	"slices"

	"golang.org/x/sys/unix"
)

// copiedMode has the bits of a file's mode that are copied: the copy may have another owner, who must
// not get a set-user-ID program.
const copiedMode = 0o777

// Copy copies a regular file, a link as a link, or, if recursive, a directory tree. It returns how
// many special files in the tree were omitted. If it fails it may have copied a part.
//
// A file is written in place, with the permission bits of the source; a copy onto itself does
// nothing. A link replaces nothing. A directory is merged into an existing one.
func Copy(ctx context.Context, source, destination string, recursive bool) (omitted uint64, err error) {
	from, err := locateIn("copy", source, nil)
	if err != nil {
		return 0, err
	}
	defer from.dir.release()
	m, err := statAt(from.dir, from.name, unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		return 0, failed("copy", from.path, err)
	}
	c := &copier{ctx: ctx}
	if m.Type == Directory {
		if !recursive {
			return 0, newError(IsADirectory, "copy", from.path, "it is a directory: ask for a recursive copy")
		}
		err = c.topDirectory(from.place, destination)
		return c.omitted, err
	}
	to, err := locateIn("copy to", destination, nil)
	if err != nil {
		return 0, err
	}
	defer to.dir.release()
	switch m.Type {
	case Regular:
		return 0, c.file(from.place, to.place)
	case Symlink:
		return 0, c.link(from.place, to.place)
	}
	return 0, notRegular("copy", from.path)
}

// place is a name in an open directory, and its path for errors.
type place struct {
	dir  descriptor
	name string
	path string
}

func (p place) open(flags int) (descriptor, error) { return openAt(p.dir, p.name, flags, 0) }

// hasType reports whether the name leads to a file of one of some types that is not
// to be opened at all: opening a FIFO wakes the process at its other end, and some
// devices react to it. A file that replaces it is checked after it was opened.
func (p place) hasType(types ...Type) bool {
	m, err := statAt(p.dir, p.name, 0)
	return err == nil && slices.Contains(types, m.Type)
}

// openError types the error of an open. Sockets, and FIFOs without a reader, cannot
// be opened, for which the kernel has the error of a missing device.
func (p place) openError(verb string, err error) error {
	if err == unix.ENXIO && p.hasType(Socket, FIFO) {
		return notRegular(verb, p.path)
	}
	return failed(verb, p.path, err)
}

// copier is one call of Copy.
type copier struct {
	ctx     context.Context
	top     identity // of the destination
	omitted uint64
	buffer  []byte
}

func (c *copier) link(from, to place) error {
	target, err := readLinkAt(from.dir, from.name)
	if err != nil {
		return failed("copy", from.path, err)
	}
	if err := unix.Symlinkat(target, int(to.dir), to.name); err != nil {
		return failed("copy to", to.path, err)
	}
	return nil
}

func (c *copier) file(from, to place) error {
	in, err := from.open(commonFlags | unix.O_RDONLY | unix.O_NOFOLLOW)
	if err != nil {
		return from.openError("copy", err)
	}
	defer in.release()
	m, err := in.stat()
	switch {
	case err != nil:
		return failed("copy", from.path, err)
	case m.Type != Regular:
		return notRegular("copy", from.path)
	}
	if to.hasType(FIFO, Socket) {
		return notRegular("copy to", to.path)
	}
	out, err := openAt(to.dir, to.name, commonFlags|unix.O_WRONLY|unix.O_CREAT, m.Mode&copiedMode)
	if err != nil {
		return to.openError("copy to", err)
	}
	if err := c.content(in, out, m, from.path, to.path); err != nil {
		out.release()
		return err
	}
	if err := out.close(); err != nil {
		return failed("copy to", to.path, err)
	}
	return nil
}

// content copies mode and content to an open file, unless that is the source.
func (c *copier) content(in, out descriptor, m Metadata, from, to string) error {
	existing, err := out.stat()
	switch {
	case err != nil:
		return failed("copy to", to, err)
	case existing.identity == m.identity:
		return nil
	case existing.Type == FIFO:
		return notRegular("copy to", to)
	case existing.Type == Regular:
		if mode := m.Mode & copiedMode; existing.Mode != mode {
			err = unix.Fchmod(int(out), mode)
		}
		if err == nil {
			err = unix.Ftruncate(int(out), 0)
		}
		if err != nil {
			return failed("copy to", to, err)
		}
	}
	if existing.Type != Regular || m.Size == 0 { // a device; files of /proc have content and no size
		_, err := c.data(in, out, extent{0, math.MaxInt64}, from, to)
		return err
	}
	return c.extents(in, out, from, to)
}
