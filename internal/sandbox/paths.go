package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// link is a symbolic link.
type link struct{ path, target string }

// fileID identifies a file on this machine. The zero value is no file.
type fileID struct{ dev, ino uint64 }

func fileIDOf(stat *unix.Stat_t) fileID { return fileID{stat.Dev, stat.Ino} }

// location is a path without symbolic links, "." and "..", and what was found there.
type location struct {
	path             string
	missing          bool
	id               fileID
	maybePlaceholder bool // the file looks like a placeholder
}

// resolvedPath is the result of following the symbolic links of a path.
type resolvedPath struct {
	location
	links []link // that were followed, in order
}

func locationOf(path string, stat *unix.Stat_t) location {
	return location{path: path, id: fileIDOf(stat), maybePlaceholder: looksLikePlaceholder(stat)}
}

// isMissing reports whether nothing exists at the path, apart from a placeholder.
func (s location) isMissing() bool { return s.missing || s.maybePlaceholder && isPlaceholder(s.path) }

// Visibility is how much a plan reveals about a path.
type Visibility uint8

// The values of Visibility.
const (
	// Hidden: the plan does not grant the path. It was not examined, so it may not
	// exist.
	Hidden Visibility = iota + 1
	// Visible: the plan grants the path, or a path below it.
	Visible
	// Virtual: the path is in /proc or /dev, of which a sandbox has its own.
	Virtual
)

// errHidden is the error for a path that must not be examined.
var errHidden = errors.New("it is not granted")

// Lookup opens a path of the machine with O_PATH if it is [Visible]. It fails if the
// path does not exist or cannot be reached. For other paths fd is -1, and the result
// does not depend on what exists there: no path that is [Hidden] is examined on the
// way. The caller closes fd.
func (c *Confinement) Lookup(path string) (fd int, visibility Visibility, err error) {
	resolved, visibility, err := resolveVisible(c.plan, path)
	if err != nil || visibility != Visible {
		return -1, visibility, err
	}
	if resolved.missing {
		return -1, Visible, unix.ENOENT
	}
	fd, err = openNoSymlinks(resolved.path)
	if errors.Is(err, unix.ELOOP) { // replaced by a symbolic link, which may lead to a hidden path
		return -1, Hidden, nil
	}
	return fd, Visible, err
}

// resolveLinks follows the symbolic links of an absolute path. If limit is not nil, it
// examines only what that plan grants, and fails with errHidden for other paths.
func resolveLinks(limit *Plan, path string) (resolvedPath, error) {
	if limit == nil || limit.unrestricted {
		if resolved, ok := resolveDirect(path); ok {
			return resolved, nil
		}
		resolved, _, err := resolveVisible(nil, path)
		return resolved, err
	}
	resolved, visibility, err := resolveVisible(limit, path)
	switch {
	case err != nil:
		return resolvedPath{}, err
	case visibility == Hidden:
		return resolvedPath{}, errHidden
	case visibility == Virtual:
		return resolveLinks(nil, path)
	}
	return resolved, nil
}

// resolveDirect is resolveLinks for an existing path of several components without
// links, the usual case, with fewer system calls. For other paths it returns false.
func resolveDirect(path string) (resolved resolvedPath, ok bool) {
	if filepath.Clean(path) != path || strings.Count(path, "/") == 1 {
		return resolvedPath{}, false
	}
	fd, err := openNoSymlinks(path)
	if err != nil {
		return resolvedPath{}, false
	}
	defer unix.Close(fd)
	var stat unix.Stat_t
	err = unix.Fstat(fd, &stat)
	return resolvedPath{location: locationOf(path, &stat)}, err == nil
}

// maxLinks is how many links the kernel follows.
const maxLinks = 40

// resolveVisible follows an absolute path like the kernel, but examines only paths that
// are visible in the plan. A nil plan shows every path. If the result is [Hidden], the
// resolvedPath is empty.
func resolveVisible(plan *Plan, path string) (resolved resolvedPath, visibility Visibility, err error) {
	at, rest := "/", strings.TrimLeft(path, "/")
	var stat unix.Stat_t
	for rest != "" {
		var name string
		name, rest, _ = strings.Cut(rest, "/")
		switch name {
		case "":
			continue
		case ".", "..":
			if err := mustBeDirectory(at); err != nil {
				return resolvedPath{}, Visible, err
			}
			if name == ".." {
				at = filepath.Dir(at)
			}
			continue
		}
		next := filepath.Join(at, name)
		switch {
		case plan == nil:
		case isVirtual(next):
			resolved.location = location{path: filepath.Join(next, rest)}
			return resolved, Virtual, nil
		case !plan.visible(next) && !slices.Contains(minimalPaths, next): // /bin may be a link to a granted directory
			return resolvedPath{}, Hidden, nil
		}
		err := unix.Lstat(next, &stat)
		switch {
		case errors.Is(err, unix.ENOENT):
			resolved.location = location{path: filepath.Join(next, rest), missing: true}
			if !plan.visible(resolved.path) {
				return resolvedPath{}, Hidden, nil
			}
			return resolved, Visible, nil
		case err != nil:
			return resolvedPath{}, Visible, err
		case stat.Mode&unix.S_IFMT != unix.S_IFLNK:
			at = next
			continue
		case len(resolved.links) == maxLinks:
			return resolvedPath{}, Visible, unix.ELOOP
		}
		target, err := os.Readlink(next)
		if err != nil {
			return resolvedPath{}, Visible, err
		}
		resolved.links = append(resolved.links, link{path: next, target: target})
		if filepath.IsAbs(target) {
			at = "/"
		}
		rest = strings.TrimLeft(target, "/") + "/" + rest
	}
	if !plan.visible(at) {
		return resolvedPath{}, Hidden, nil
	}
	if err := unix.Lstat(at, &stat); err != nil {
		return resolvedPath{}, Visible, err
	}
	if strings.HasSuffix(path, "/") && stat.Mode&unix.S_IFMT != unix.S_IFDIR {
		return resolvedPath{}, Visible, unix.ENOTDIR
	}
	resolved.location = locationOf(at, &stat)
	return resolved, Visible, nil
}

// isVirtual reports whether a path is in a directory of which a sandbox has its own.
func isVirtual(path string) bool {
	return slices.ContainsFunc(virtualDirs, func(dir string) bool { return within(path, dir) })
}

// mustBeDirectory fails with ENOTDIR if a path without links is not a directory.
func mustBeDirectory(path string) error {
	var stat unix.Stat_t
	if err := unix.Lstat(path, &stat); err != nil {
		return err
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFDIR {
		return unix.ENOTDIR
	}
	return nil
}

// visible reports whether a path without links may be examined: it is readable, it is
// above a readable path, or it is (or is above) a link to a readable path. The root
// always is. In a nil plan all paths are visible.
func (p *Plan) visible(path string) bool {
	if p == nil || path == "/" || p.Access(path) >= AccessRead {
		return true
	}
	for at, r := range p.rules {
		if r.access >= AccessRead && within(at, path) {
			return true
		}
	}
	return slices.ContainsFunc(p.links, func(l link) bool { return within(l.path, path) })
}

// openNoSymlinks opens a path with O_PATH. It fails with ELOOP if the path contains a
// symbolic link.
func openNoSymlinks(path string) (int, error) {
	return unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
}

var errReplaced = errors.New("it was replaced by another file")

// openUnchanged is openNoSymlinks, but also fails if the path is no longer the given
// file. The zero fileID accepts any file.
func openUnchanged(path string, was fileID) (int, error) {
	fd, err := openNoSymlinks(path)
	if err != nil || was == (fileID{}) {
		return fd, err
	}
	var stat unix.Stat_t
	if err = unix.Fstat(fd, &stat); err == nil && fileIDOf(&stat) != was {
		err = errReplaced
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}
