package fsops

import (
	"context"
	"io"
	"path"

	"golang.org/x/sys/unix"
)

// Removal has the options of Remove.
type Removal struct {
	// Recursive removes a directory tree.
	Recursive bool
	// IgnoreMissing succeeds if the path does not exist.
	IgnoreMissing bool
	// NoSymlinks rejects a path with a link in it, also at its end.
	NoSymlinks bool
}

// Remove removes a file, a directory, or a link, which is never followed. If it fails it may have
// removed a part of a tree. It rejects the root, and with MountPoint any mount point, also inside of
// a tree.
func Remove(ctx context.Context, p string, removal Removal) error {
	if path.Clean(p) == "/" {
		return failed("remove", p, unix.EBUSY)
	}
	var reach []PathOption
	if removal.NoSymlinks {
		reach = append(reach, NoSymlinks)
	}
	t, err := locateIn("remove", p, reach)
	if err == nil {
		defer t.dir.release()
		if t.noLinks && isLink(t.dir, t.name) {
			err = unix.ELOOP
		} else {
			err = removeAt(ctx, t.dir, t.name, t.path, removal.Recursive)
		}
	}
	if removal.IgnoreMissing && (err == unix.ENOENT || KindOf(err) == NotFound) {
		return nil
	}
	if isErrno(err) {
		return t.failed("remove", err)
	}
	return err
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
		// The kernel returns it also for a name that does not exist.
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

// tree is a directory that is being emptied. Only one of its directories is open at a time, whatever
// its depth. It returns to a parent by "..", after checking its identity.
type tree struct {
	ctx  context.Context
	path string // of the current directory
	here *listing
	// removed reports whether an entry was removed since the listing began.
	removed bool
	levels  []level // from the top to the current directory
}

// level is a directory on the way from the top.
type level struct {
	name     string
	identity identity
	pending  []Entry // read, and not yet removed
}

const (
	// levelEntries is how many entries are read at a time, and so stored for each level.
	levelEntries = 128
	// levelBytes is the size of the buffer for them.
	levelBytes = 8 << 10
)

// enter opens a directory below another one, which may then be closed. It rejects mount points: their
// content would be removed, and they could not.
func (t *tree) enter(parent descriptor, name, p string) error {
	fd, err := openAt(parent, name, openDirRead|unix.O_NOFOLLOW, 0)
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
			// Some file systems lose their position when entries are removed. The listing is
			// restarted only here, because others then build a list of all entries.
			t.removed = false
			if err = t.here.rewind(); err == nil {
				continue
			}
		}
		switch {
		case (err == io.EOF || err == unix.ENOENT) && len(t.levels) == 1:
			return nil
		case err == io.EOF, err == unix.ENOENT: // also for a directory that another process removed
			err = t.leave()
		case err != nil:
			err = failed("remove", t.path, err)
		}
		if err != nil {
			return err
		}
	}
}

// remove removes an entry of the current directory, or enters it.
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

// leave returns from an empty directory to its parent, and removes it.
func (t *tree) leave() error {
	left := t.levels[len(t.levels)-1]
	above := t.levels[len(t.levels)-2]
	fd, err := openAt(t.here.fd, "..", openDirRead, 0)
	if err != nil {
		return failed("remove", t.path, err)
	}
	m, err := fd.stat()
	if err != nil || m.identity != above.identity {
		fd.release()
		return newError(Failed, "remove", t.path, "it was moved meanwhile: try again")
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
