package fsops

import (
	"context"
	"io"
	"path"

	"golang.org/x/sys/unix"
)

// Removal says how to remove.
type Removal struct {
	// Recursive removes a directory with all that is in it.
	Recursive bool
	// IgnoreMissing takes a path that is not there as removed.
	IgnoreMissing bool
	// NoSymlinks refuses a path with a link in it, also at its end.
	NoSymlinks bool
}

// Remove removes a file, a directory, or a link, which is never followed. When
// it fails it can have removed a part of a tree. The root is refused, and so is, as
// MountPoint, what a file system is mounted on, also when a tree comes to it.
func Remove(ctx context.Context, p string, how Removal) error {
	p, err := cleaned("remove", p)
	if err != nil {
		return err
	}
	if p == "/" {
		return failed("remove", p, unix.EBUSY)
	}
	var reach []How
	if how.NoSymlinks {
		reach = append(reach, NoSymlinks)
	}
	t, err := locateIn("remove", p, reach)
	if err == nil {
		defer t.dir.release()
		err = t.remove(ctx, how.Recursive)
	}
	if how.IgnoreMissing && (err == unix.ENOENT || KindOf(err) == NotFound) {
		return nil
	}
	if isErrno(err) {
		return t.failed("remove", err)
	}
	return err
}

// remove removes it. The error is as that of removeAt.
func (t target) remove(ctx context.Context, recursive bool) error {
	if t.noLinks && isLink(t.dir, t.name) {
		return unix.ELOOP
	}
	return removeAt(ctx, t.dir, t.name, t.path, recursive)
}

func isErrno(err error) bool {
	_, ok := err.(unix.Errno)
	return ok
}

// removeAt removes a name. Its error is of the kernel about the name, or typed
// already.
func removeAt(ctx context.Context, parent descriptor, name, p string, recursive bool) error {
	err := unix.Unlinkat(int(parent), name, 0)
	switch {
	case err == unix.EROFS:
		// The kernel refuses before it looks whether there is something.
		if _, missing := statAt(parent, name, unix.AT_SYMLINK_NOFOLLOW); missing != nil {
			return missing
		}
		return err
	case err != unix.EISDIR:
		return err
	case !recursive:
		return unix.Unlinkat(int(parent), name, unix.AT_REMOVEDIR)
	}
	t := &tree{ctx: ctx, path: p}
	defer t.close()
	if err := t.enter(parent, name, p); err != nil {
		return err
	}
	if err := t.empty(); err != nil {
		return err
	}
	return unix.Unlinkat(int(parent), name, unix.AT_REMOVEDIR)
}

// tree is a directory that is being emptied. Whatever its depth, one of its
// directories is open at a time; the way back is the name "..", which is believed
// if it leads to the directory that was left.
type tree struct {
	ctx  context.Context
	path string // of where we are
	here *listing
	// removed says that an entry went since the listing began.
	removed bool
	levels  []level // from the top to where we are
}

// level is a directory on the way from the top.
type level struct {
	name     string
	identity identity
	pending  []Entry // read, and not yet removed
}

const (
	// levelEntries is how many entries are read at a time, and so kept of each
	// level.
	levelEntries = 128
	// levelBytes is what they are read into.
	levelBytes = 8 << 10
)

// enter opens a directory below another one, which may be closed then. What is
// mounted is not entered: it could not be removed, but what is in it would be.
func (t *tree) enter(parent descriptor, name, p string) error {
	fd, err := openAt(parent, name, asDirectory|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	m, err := fd.stat()
	if err == nil && m.mountRoot {
		err = mountPoint("remove", p)
	}
	if err != nil {
		fd.release()
		return err
	}
	t.close()
	t.here, t.removed = newListing(fd, levelBytes), false
	t.levels = append(t.levels, level{name: name, identity: m.identity})
	return nil
}

func (t *tree) close() {
	if t.here != nil {
		t.here.fd.release()
		t.here = nil
	}
}

// empty removes all that is below the top.
func (t *tree) empty() error {
	for {
		if t.ctx.Err() != nil {
			return context.Cause(t.ctx)
		}
		at := &t.levels[len(t.levels)-1]
		if len(at.pending) > 0 {
			next := at.pending[len(at.pending)-1].Name
			at.pending, t.removed = at.pending[:len(at.pending)-1], true
			if err := t.remove(next); err != nil {
				return err
			}
			continue
		}
		var err error
		at.pending, err = t.here.some(levelEntries)
		if err == io.EOF && t.removed {
			// Some file systems lose their place when entries go. The listing begins
			// again only here, because others make a list of all entries for that.
			t.removed = false
			if err = t.here.rewind(); err == nil {
				continue
			}
		}
		switch {
		case (err == io.EOF || err == unix.ENOENT) && len(t.levels) == 1:
			return nil
		case err == io.EOF, err == unix.ENOENT: // which is said of what others removed
			err = t.leave()
		case err != nil:
			err = failed("remove", t.path, err)
		}
		if err != nil {
			return err
		}
	}
}

// remove removes an entry of where we are, or enters it.
func (t *tree) remove(name string) error {
	err := unix.Unlinkat(int(t.here.fd), name, 0)
	if err == unix.EISDIR {
		below := path.Join(t.path, name)
		if err = t.enter(t.here.fd, name, below); err == nil {
			t.path = below
			return nil
		}
	}
	switch {
	case err == nil, err == unix.ENOENT:
		return nil
	case !isErrno(err):
		return err
	}
	return failedAt("remove", place{t.here.fd, name, path.Join(t.path, name)}, err)
}

// leave goes back from an empty directory, and removes it.
func (t *tree) leave() error {
	left := t.levels[len(t.levels)-1]
	above := t.levels[len(t.levels)-2]
	fd, err := openAt(t.here.fd, "..", asDirectory, 0)
	if err != nil {
		return failed("remove", t.path, err)
	}
	m, err := fd.stat()
	if err != nil || m.identity != above.identity {
		fd.release()
		return refused(Failed, "remove", t.path, "it was moved meanwhile: try again")
	}
	t.close()
	t.here, t.removed = newListing(fd, levelBytes), false
	t.levels = t.levels[:len(t.levels)-1]
	if err := unix.Unlinkat(int(fd), left.name, unix.AT_REMOVEDIR); err != nil && err != unix.ENOENT {
		return failedAt("remove", place{fd, left.name, t.path}, err)
	}
	t.path = path.Dir(t.path)
	return nil
}
