package fsops

import (
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// How is what a call does differently with its path.
type How uint8

// NoSymlinks has a call follow no links: a path with one in it, also at its end, is
// SymlinkRefused.
const NoSymlinks How = 1

// target is what a path names: the path itself, or the name at its end in the
// directory that it is in, which was reached without links.
type target struct {
	place
	noLinks bool
}

// locate finds what a path names, which is clean. It is to be released.
func locate(verb, p string, how []How) (target, error) {
	if !slices.Contains(how, NoSymlinks) {
		return target{place: place{unix.AT_FDCWD, p, p}}, nil
	}
	t := target{place{name: path.Base(p), path: p}, true}
	if p == "/" {
		t.name = "."
	}
	root, err := openPath("/", asParent, 0)
	if err == nil {
		t.dir, err = openBeneath(root, strings.Trim(path.Dir(p), "/"), asParent, 0)
		root.release()
	}
	if err != nil {
		return target{}, t.failed(verb, err)
	}
	return t, nil
}

// locateIn is locate, but for the directory that the name is in, which is open in
// either case and to be released.
func locateIn(verb, p string, how []How) (target, error) {
	if slices.Contains(how, NoSymlinks) {
		return locate(verb, p, how)
	}
	dir, name, err := openParent(p)
	if err != nil {
		return target{}, failed(verb, p, err)
	}
	return target{place: place{dir, name, p}}, nil
}

// statWithoutLinks describes a path that may have no links in it.
func statWithoutLinks(p string) (Metadata, error) {
	t, err := locate("look at", p, []How{NoSymlinks})
	if err != nil {
		return Metadata{}, err
	}
	defer t.release()
	m, err := t.stat()
	if err != nil {
		return Metadata{}, t.failed("look at", err)
	}
	return m, nil
}

// release closes the directory, if it is one of the target.
func (t target) release() {
	if t.noLinks {
		t.dir.release()
	}
}

// open opens it.
func (t target) open(flags int, mode uint32) (descriptor, error) {
	if !t.noLinks {
		return openAt(t.dir, t.name, flags, mode)
	}
	fd, err := openAt(t.dir, t.name, flags|unix.O_NOFOLLOW, mode)
	if err == unix.ENOTDIR && isLink(t.dir, t.name) {
		err = unix.ELOOP
	}
	return fd, err
}

// stat describes it.
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

// isOf reports whether it is of one of some types. What takes its place after that
// is judged when it is open.
func (t target) isOf(types ...Type) bool {
	m, err := t.stat()
	return err == nil && slices.Contains(types, m.Type)
}

// failed types what the kernel said about it.
func (t target) failed(verb string, err error) error {
	if t.noLinks && err == unix.ELOOP {
		return refused(SymlinkRefused, verb, t.path, "a part of the path is a symbolic link, and none was to be followed: use the path without links")
	}
	return failedAt(verb, t.place, err)
}

// notOpened is failed for an open; see [notOpened].
func (t target) notOpened(verb string, err error) error {
	if err == unix.ENXIO {
		return notOpened(verb, t.dir, t.name, t.path, err)
	}
	return t.failed(verb, err)
}
