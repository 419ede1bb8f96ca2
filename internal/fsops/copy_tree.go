package fsops

import (
	"context"
	"io"
	"path"
	"strconv"

	"golang.org/x/sys/unix"
)

// MaxCopyDepth is the maximum depth of a copied tree. Each level has two open descriptors.
const MaxCopyDepth = 200

// topDirectory copies a directory to a path. It creates that and its parents if they are missing.
func (c *copier) topDirectory(from place, destination string) error {
	destination, err := cleanPath("copy to", destination)
	if err != nil {
		return err
	}
	in, err := from.open(openDirRead | unix.O_NOFOLLOW)
	if err != nil {
		return failed("copy", from.path, err)
	}
	defer in.release()
	m, err := in.stat()
	if err != nil {
		return failed("copy", from.path, err)
	}
	if err := checkOutsideSource(m.identity, from.path, destination); err != nil {
		return err
	}
	if err := CreateDirectory(destination, true, nil); err != nil {
		return err
	}
	out, err := openPath(destination)
	if err != nil {
		return failed("copy to", destination, err)
	}
	defer out.release()
	made, err := out.stat()
	if err != nil {
		return failed("copy to", destination, err)
	}
	c.top = made.identity
	return c.directory(in, out, from.path, destination, 1)
}

// checkOutsideSource rejects a destination that is the source or below it.
func checkOutsideSource(source identity, sourcePath, destination string) error {
	p := destination
	dir, err := openPath(p)
	for (err == unix.ENOENT || err == unix.ENOTDIR) && p != "/" {
		p = path.Dir(p)
		dir, err = openPath(p)
	}
	if err != nil {
		return failed("copy to", destination, err)
	}
	within, err := isWithin(dir, source)
	switch {
	case err != nil:
		return failed("copy to", destination, err)
	case within:
		return copyIntoSelfError(sourcePath)
	}
	return nil
}

func copyIntoSelfError(source string) error {
	return newError(CopyIntoItself, "copy", source, "the copy would be in the directory that is copied: choose a place outside")
}

// isWithin reports whether a directory is top, or below it. It closes the
// directory.
func isWithin(dir descriptor, top identity) (bool, error) {
	m, err := dir.stat()
	for {
		if err != nil || m.identity == top {
			dir.release()
			return err == nil, err
		}
		above, openErr := openAt(dir, "..", openDirPath, 0)
		dir.release()
		if openErr != nil {
			return false, openErr
		}
		child := m.identity
		if m, err = above.stat(); err == nil && m.identity == child { // the root is its own parent
			above.release()
			return false, nil
		}
		dir = above
	}
}

// directory copies the entries of a directory.
func (c *copier) directory(in, out descriptor, from, to string, depth int) error {
	if depth > MaxCopyDepth {
		return newError(TreeTooDeep, "copy", from, "directories are nested deeper than "+strconv.Itoa(MaxCopyDepth)+": copy a part at a time").withLimit(MaxCopyDepth)
	}
	list := newListing(in, levelBytes)
	for {
		if c.ctx.Err() != nil {
			return context.Cause(c.ctx)
		}
		e, err := list.next()
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return failed("copy", from, err)
		}
		if e.Type == 0 { // the file system does not list types
			m, err := statAt(in, e.Name, unix.AT_SYMLINK_NOFOLLOW)
			if err != nil {
				return failed("copy", path.Join(from, e.Name), err)
			}
			e.Type = m.Type
		}
		err = c.entry(e.Type, place{in, e.Name, path.Join(from, e.Name)}, place{out, e.Name, path.Join(to, e.Name)}, depth)
		if err != nil {
			return err
		}
	}
}

func (c *copier) entry(t Type, from, to place, depth int) error {
	switch t {
	case Regular:
		return c.file(from, to)
	case Symlink:
		return c.link(from, to)
	case Directory:
		return c.subdirectory(from, to, depth)
	}
	c.omitted++
	return nil
}

func (c *copier) subdirectory(from, to place, depth int) error {
	in, err := from.open(openDirRead | unix.O_NOFOLLOW)
	if err != nil {
		return failed("copy", from.path, err)
	}
	defer in.release()
	m, err := in.stat()
	switch {
	case err != nil:
		return failed("copy", from.path, err)
	case m.identity == c.top: // moved or mounted below the source
		return copyIntoSelfError(from.path)
	}
	out, err := makeOrOpen(to, m.identity, from.path)
	if err != nil {
		return err
	}
	defer out.release()
	return c.directory(in, out, from.path, to.path, depth+1)
}

// makeOrOpen creates a directory for the copy of source, or opens an existing directory or link to
// one that is not in the source.
func makeOrOpen(to place, source identity, sourcePath string) (descriptor, error) {
	made := unix.Mkdirat(int(to.dir), to.name, directoryMode)
	if made != nil && made != unix.EEXIST {
		return 0, failed("copy to", to.path, made)
	}
	out, err := to.open(openDirPath | unix.O_NOFOLLOW)
	switch {
	case err == nil:
		return out, nil
	case made == nil:
		return 0, failed("copy to", to.path, err)
	}
	out, err = to.open(openDirPath)
	if err != nil {
		return 0, failed("copy to", to.path, unix.EEXIST)
	}
	again, err := openAt(out, ".", openDirPath, 0) // isWithin closes its argument
	if err != nil {
		out.release()
		return 0, failed("copy to", to.path, err)
	}
	within, err := isWithin(again, source)
	switch {
	case err != nil:
		out.release()
		return 0, failed("copy to", to.path, err)
	case within:
		out.release()
		return 0, copyIntoSelfError(sourcePath)
	}
	return out, nil
}
