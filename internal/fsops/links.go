package fsops

import (
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// PathOption changes how a call resolves its path.
type PathOption uint8

// NoSymlinks rejects a path with a symbolic link in it, also at its end, with SymlinkRefused.
const NoSymlinks PathOption = 1

// target is a located path: a path that the kernel resolves, or with noLinks the last name of the
// path in its open directory, which was reached without following links.
type target struct {
	place
	noLinks bool
}

// locate resolves a path according to options. The caller releases the target.
func locate(verb, p string, options []PathOption) (target, error) {
	p, err := cleanPath(verb, p)
	if err != nil {
		return target{}, err
	}
	if !slices.Contains(options, NoSymlinks) {
		return target{place: place{unix.AT_FDCWD, p, p}}, nil
	}
	t := target{place{name: path.Base(p), path: p}, true}
	if p == "/" {
		t.name = "."
	}
	root, err := openPath("/")
	if err == nil {
		t.dir, err = openBeneath(root, strings.Trim(path.Dir(p), "/"), openDirPath)
		root.release()
	}
	if err != nil {
		return target{}, t.failed(verb, err)
	}
	return t, nil
}

// locateIn is locate, but always opens the directory of the path's last name. The caller releases
// that directory.
func locateIn(verb, p string, options []PathOption) (target, error) {
	t, err := locate(verb, p, options)
	if err != nil || t.noLinks {
		return t, err
	}
	if t.dir, t.name, err = openParent(t.path); err != nil {
		return target{}, failed(verb, t.path, err)
	}
	return t, nil
}

// release closes the directory, if there is one.
func (t target) release() {
	if t.noLinks {
		t.dir.release()
	}
}

func (t target) open(flags int, mode uint32) (descriptor, error) {
	if !t.noLinks {
		return openAt(t.dir, t.name, flags, mode)
	}
	return openNoFollow(t.dir, t.name, flags, mode)
}

func (t target) stat() (Metadata, error) {
	if !t.noLinks {
		return statAt(t.dir, t.name, 0)
	}
	m, err := statAt(t.dir, t.name, unix.AT_SYMLINK_NOFOLLOW)
	if err == nil && m.IsSymlink {
		err = unix.ELOOP
	}
	return m, err
}

// hasType is place.hasType, but false for a link that must not be followed.
func (t target) hasType(types ...Type) bool {
	m, err := t.stat()
	return err == nil && slices.Contains(types, m.Type)
}

// failed returns the typed error for a system error.
func (t target) failed(verb string, err error) error {
	if t.noLinks && err == unix.ELOOP {
		return newError(SymlinkRefused, verb, t.path, "a part of the path is a symbolic link, and none was to be followed: use the path without links")
	}
	return failedAt(verb, t.place, err)
}

// openError is failed for an open; see place.openError.
func (t target) openError(verb string, err error) error {
	if err == unix.ENXIO {
		return t.place.openError(verb, err)
	}
	return t.failed(verb, err)
}
