package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// link is a symbolic link.
type link struct{ path, target string }

// walk is where a path leads.
type walk struct {
	path    string // without links, ".." or "."; if missing, where it would be
	missing bool
	// kept tells that it is missing, but for a placeholder that keeps it so.
	kept  bool
	links []link // met on the way, in this order
}

// maxLinks is how many links the kernel follows.
const maxLinks = 40

// follow follows an absolute path. One that is there and has no links, as most have not, it only opens: that takes two
// calls of the system in place of one for each part.
func follow(path string) (walk, error) {
	var w walk
	if filepath.Clean(path) == path {
		if fd, err := openPlace(path); err == nil {
			return walk{path: path}, unix.Close(fd)
		}
	}
	at, rest := "/", strings.TrimLeft(path, "/")
	for rest != "" {
		var name string
		name, rest, _ = strings.Cut(rest, "/")
		switch name {
		case "", ".":
			continue
		case "..":
			at = filepath.Dir(at)
			continue
		}
		next := filepath.Join(at, name)
		var stat unix.Stat_t
		err := unix.Lstat(next, &stat)
		switch {
		case errors.Is(err, unix.ENOENT):
			w.path, w.missing = filepath.Join(next, rest), true
			return w, nil
		case err != nil:
			return w, err
		case stat.Mode&unix.S_IFMT != unix.S_IFLNK && strings.Trim(rest, "/") == "" && isPlaceholder(next, &stat):
			w.path, w.missing, w.kept = next, true, true
			return w, nil
		case stat.Mode&unix.S_IFMT != unix.S_IFLNK:
			at = next
			continue
		case len(w.links) == maxLinks:
			return w, unix.ELOOP
		}
		target, err := os.Readlink(next)
		if err != nil {
			return w, err
		}
		w.links = append(w.links, link{path: next, target: target})
		if filepath.IsAbs(target) {
			at = "/"
		}
		rest = strings.TrimLeft(target, "/") + "/" + rest
	}
	w.path = at
	return w, nil
}

// openPlace opens a path that has no links, and fails with ELOOP if it has some by now. The descriptor gives no access.
func openPlace(path string) (int, error) {
	return unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
}

// isDirectory tells of an open place what it is.
func isDirectory(fd int) (bool, error) {
	var stat unix.Stat_t
	err := unix.Fstat(fd, &stat)
	return stat.Mode&unix.S_IFMT == unix.S_IFDIR, err
}
