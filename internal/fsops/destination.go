package fsops

import (
	"cmp"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// maxLinks is how many links at the end of a path are followed, as many as the
// kernel follows.
const maxLinks = 40

// destination is where a file is put: a name in an open directory, which was not a link when it was
// looked up.
type destination struct {
	place
	// found describes the existing file; its Type is 0 if there is none.
	found Metadata
}

// openDestination follows the links at the end of a path, also dangling ones. The caller releases
// the directory of the destination.
func openDestination(verb, p string, noLinks bool) (destination, error) {
	if noLinks {
		return openUnlinked(verb, p)
	}
	dir, name, err := openParent(p)
	for links := 0; err == nil; links++ {
		var target string
		var found Metadata
		if found, target, err = lookAt(dir, name); err == nil && found.Type != Symlink {
			return destination{place{dir, name, p}, found}, nil
		}
		above := dir
		if err == nil && links == maxLinks {
			err = unix.ELOOP
		}
		if err == nil {
			dir, name, err = openTarget(above, target)
		}
		above.release()
	}
	return destination{}, failed(verb, p, err)
}

// openUnlinked is openDestination for a path that may have no links in it.
func openUnlinked(verb, p string) (destination, error) {
	t, err := locate(verb, p, []PathOption{NoSymlinks})
	if err != nil {
		return destination{}, err
	}
	found, err := t.stat()
	if err != nil && err != unix.ENOENT {
		t.release()
		return destination{}, t.failed(verb, err)
	}
	return destination{t.place, found}, nil
}

// lookAt describes a name, and returns the target of a link that may be followed. The Type of a
// missing file is 0.
func lookAt(dir descriptor, name string) (m Metadata, target string, err error) {
	fd, err := openAt(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err == unix.ENOENT {
		return Metadata{}, "", nil
	}
	if err != nil {
		return Metadata{}, "", err
	}
	defer fd.release()
	if m, err = fd.stat(); err != nil || m.Type != Symlink {
		return m, "", err
	}
	above, err := dir.stat()
	if err != nil {
		return m, "", err
	}
	// The kernel does not follow such links either, by default (fs.protected_symlinks): in a directory
	// that all users may write to, another user may have created them.
	const shared = unix.S_ISVTX | unix.S_IWOTH
	if above.Mode&shared == shared && m.UID != uint32(os.Geteuid()) && m.UID != above.UID {
		return m, "", unix.EACCES
	}
	target, err = readLinkAt(fd, "")
	return m, target, err
}

// openTarget opens the directory of the target of a link, and returns the target's name in it.
func openTarget(dir descriptor, target string) (parent descriptor, name string, err error) {
	i := strings.LastIndexByte(target, '/')
	above, name := target[:i+1], target[i+1:]
	if name == "" { // which is for directories
		return 0, "", unix.EISDIR
	}
	parent, err = openAt(dir, cmp.Or(above, "."), openDirPath, 0)
	return parent, name, err
}

// replaceable rejects files that have no content to replace.
func replaceable(verb, path string, found Metadata) error {
	switch found.Type {
	case 0, Regular, Symlink: // a link that appeared later is itself replaced
		return nil
	case Directory:
		return failed(verb, path, unix.EISDIR)
	}
	return notRegular(verb, path)
}
