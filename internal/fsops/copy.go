package fsops

import (
	"context"
	"math"

	"golang.org/x/sys/unix"
)

// copiedMode are the bits of a file's mode that its copy gets: the copy has
// another owner, for whom set-user-ID was not meant.
const copiedMode = 0o777

// Copy copies a regular file, a link as a link, or, if recursive, a directory
// with all that is in it. It returns how many special files in the directory were
// left out. When it fails it can have copied a part.
//
// A file is written in place, with the permission bits of the source; if it is
// the source, nothing is done. A link replaces nothing. A directory is merged
// into one that exists.
func Copy(ctx context.Context, source, destination string, recursive bool) (omitted uint64, err error) {
	if source, err = cleaned("copy", source); err != nil {
		return 0, err
	}
	if destination, err = cleaned("copy to", destination); err != nil {
		return 0, err
	}
	from, name, err := openParent(source)
	if err != nil {
		return 0, failed("copy", source, err)
	}
	defer from.release()
	m, err := statAt(from, name, unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		return 0, failed("copy", source, err)
	}
	c := &copying{ctx: ctx}
	if m.Type == Directory {
		if !recursive {
			return 0, refused(IsADirectory, "copy", source, "it is a directory: ask for a recursive copy")
		}
		err = c.topDirectory(place{from, name, source}, destination)
		return c.omitted, err
	}
	to, toName, err := openParent(destination)
	if err != nil {
		return 0, failed("copy to", destination, err)
	}
	defer to.release()
	switch m.Type {
	case Regular:
		return 0, c.file(place{from, name, source}, place{to, toName, destination})
	case Symlink:
		return 0, c.link(place{from, name, source}, place{to, toName, destination})
	}
	return 0, notRegular("copy", source)
}

// place is a name in an open directory, and its path for errors.
type place struct {
	dir  descriptor
	name string
	path string
}

func (p place) open(flags int) (descriptor, error) { return openAt(p.dir, p.name, flags, 0) }

// copying is a copy that is made.
type copying struct {
	ctx     context.Context
	top     identity // of the directory that is made
	omitted uint64
	buffer  []byte
}

func (c *copying) link(from, to place) error {
	target, err := readLinkAt(from.dir, from.name)
	if err != nil {
		return failed("copy", from.path, err)
	}
	if err := unix.Symlinkat(target, int(to.dir), to.name); err != nil {
		return failed("copy to", to.path, err)
	}
	return nil
}

func (c *copying) file(from, to place) error {
	in, err := from.open(always | unix.O_RDONLY | unix.O_NOFOLLOW)
	if err != nil {
		return notOpened("copy", from.dir, from.name, from.path, err)
	}
	defer in.release()
	m, err := in.stat()
	switch {
	case err != nil:
		return failed("copy", from.path, err)
	case m.Type != Regular:
		return notRegular("copy", from.path)
	}
	if special(to.dir, to.name, FIFO, Socket) {
		return notRegular("copy to", to.path)
	}
	out, err := openAt(to.dir, to.name, always|unix.O_WRONLY|unix.O_CREAT, m.Mode&copiedMode)
	if err != nil {
		return notOpened("copy to", to.dir, to.name, to.path, err)
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

// content makes a file that is open have the mode and the content of another
// one, unless it is that one.
func (c *copying) content(in, out descriptor, m Metadata, from, to string) error {
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
	default: // a device takes what it gets
		_, err := c.data(in, out, extent{0, math.MaxInt64}, from, to)
		return err
	}
	return c.extents(in, out, from, to)
}
