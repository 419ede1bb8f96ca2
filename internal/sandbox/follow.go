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

// identity tells a file from what takes its place. The zero value is nothing at all.
type identity struct{ dev, ino uint64 }

func identityOf(stat *unix.Stat_t) identity { return identity{stat.Dev, stat.Ino} }

// walk is where a path leads.
type walk struct {
	spot
	links []link // met on the way, in this order
}

// spot is where something is, or would be.
type spot struct {
	path      string // without links, ".." or "."
	missing   bool
	is        identity // what is there
	looksKept bool     // that may be a placeholder
}

// found is where something is.
func found(path string, stat *unix.Stat_t) spot {
	return spot{path: path, is: identityOf(stat), looksKept: looksKept(stat)}
}

// isMissing tells that nothing is there but perhaps a placeholder.
func (s spot) isMissing() bool { return s.missing || s.looksKept && isPlaceholder(s.path) }

// maxLinks is how many links the kernel follows.
const maxLinks = 40

// maxHeld is how many directories a survey keeps open.
const maxHeld = 16

// survey follows paths, for one plan. Directories that it has opened stay open, so that what is in them is found without
// walking there again. It is for one goroutine, and is to be closed.
type survey struct {
	held  []directory
	limit *Plan // what it may look at; nil: everything
}

// errOutside is why nothing is said of a place that a survey may not look at.
var errOutside = errors.New("it is not granted")

// reachable is where a path leads. It fails with errOutside if the plan does not let that be looked at.
func (p *Plan) reachable(path string) (walk, error) {
	w, reach, err := p.reach(path)
	switch {
	case err != nil:
		return walk{}, err
	case reach == Outside:
		return walk{}, errOutside
	case reach == Own:
		return follow(path)
	}
	return w, nil
}

// directory is one that is open.
type directory struct {
	path string
	fd   int
}

func (s *survey) close() {
	for _, d := range s.held {
		_ = unix.Close(d.fd)
	}
	s.held = nil
}

// find returns a directory that is open already.
func (s *survey) find(path string) (fd int, ok bool) {
	for _, d := range s.held {
		if d.path == path {
			return d.fd, true
		}
	}
	return -1, false
}

// in calls look with an open place that has no links.
func (s *survey) in(path string, look func(fd int) error) error {
	fd, ok := s.find(path)
	if !ok {
		var err error
		if fd, err = openPlace(path); err != nil {
			return err
		}
		defer s.hold(path, fd)
	}
	return look(fd)
}

// hold keeps a place open, or closes it.
func (s *survey) hold(path string, fd int) {
	if len(s.held) == maxHeld {
		_ = unix.Close(fd)
		return
	}
	s.held = append(s.held, directory{path, fd})
}

// follow follows an absolute path with a survey of its own.
func follow(path string) (walk, error) {
	var s survey
	defer s.close()
	return s.follow(path)
}

// follow follows an absolute path. One that has no links, as most have not, is opened as a whole, or its directory is if
// it is missing: that takes fewer calls of the system than to look at each part.
func (s *survey) follow(path string) (walk, error) {
	if s.limit != nil && !s.limit.unrestricted {
		return s.limit.reachable(path)
	}
	if filepath.Clean(path) == path {
		if w, ok := s.direct(path); ok {
			return w, nil
		}
	}
	var w walk
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
	var stat unix.Stat_t
	if err := unix.Lstat(at, &stat); err != nil {
		return w, err
	}
	w.spot = found(at, &stat)
	return w, nil
}

// direct finds a path that has no links, "." or ".." and whose directory exists. It is false for any other.
func (s *survey) direct(path string) (walk, bool) {
	if path == "/" {
		var stat unix.Stat_t
		err := unix.Lstat(path, &stat)
		return walk{spot: found(path, &stat)}, err == nil
	}
	dir, name := filepath.Dir(path), filepath.Base(path)
	if _, held := s.find(dir); !held {
		fd, err := openPlace(path)
		if err == nil {
			var stat unix.Stat_t
			if err = unix.Fstat(fd, &stat); err == nil {
				s.hold(path, fd)
				return walk{spot: found(path, &stat)}, true
			}
			_ = unix.Close(fd)
		}
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return walk{}, false
		}
	}
	at, ok := spot{path: path}, false
	_ = s.in(dir, func(fd int) error { // whoever looks at each part finds out why not
		var stat unix.Stat_t
		err := unix.Fstatat(fd, name, &stat, unix.AT_SYMLINK_NOFOLLOW)
		switch {
		case errors.Is(err, unix.ENOENT):
			at.missing, ok = true, true
		case err == nil && stat.Mode&unix.S_IFMT != unix.S_IFLNK:
			at, ok = found(path, &stat), true
		}
		return nil
	})
	return walk{spot: at}, ok
}

// openPlace opens a path that has no links, and fails with ELOOP if it has some by now. The descriptor gives no access.
func openPlace(path string) (int, error) {
	return unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
}

// errReplaced is why a place is not what it was that has no links.
var errReplaced = errors.New("another file has taken its place")

// openSame opens a path that has no links and is still the same file, unless that is not known.
func openSame(path string, was identity) (int, error) {
	fd, err := openPlace(path)
	if err != nil || was == (identity{}) {
		return fd, err
	}
	var stat unix.Stat_t
	if err = unix.Fstat(fd, &stat); err == nil && identityOf(&stat) != was {
		err = errReplaced
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// isDirectory tells of an open place what it is.
func isDirectory(fd int) (bool, error) {
	var stat unix.Stat_t
	err := unix.Fstat(fd, &stat)
	return stat.Mode&unix.S_IFMT == unix.S_IFDIR, err
}
