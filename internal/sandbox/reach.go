package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Reach says where a path leads, as far as a plan lets that be known.
type Reach uint8

// The answers of [Confinement.Look].
const (
	// Outside is what the plan does not grant. Whether anything is there was not looked at.
	Outside Reach = iota + 1
	// Inside is what the plan grants, or a directory above that.
	Inside
	// Own is in /proc or /dev, of which the program has its own, so that nothing is known from outside.
	Own
)

// Look opens what is at an absolute path outside if the plan grants it or something below it; what is missing or cannot be
// reached there is an error. The descriptor gives no access, is -1 unless the path is [Inside], and is the caller's.
// Nothing else is looked at on the way, so that the answer says nothing about what the plan does not grant.
func (c *Confinement) Look(path string) (fd int, reach Reach, err error) {
	w, reach, err := c.plan.reach(path)
	if err != nil || reach != Inside {
		return -1, reach, err
	}
	if w.missing {
		return -1, Inside, unix.ENOENT
	}
	fd, err = openPlace(w.path)
	if errors.Is(err, unix.ELOOP) { // a link has come there, which may lead out
		return -1, Outside, nil
	}
	return fd, Inside, err
}

// reach follows an absolute path and looks only at what is visible. Of [Outside] it returns nothing.
func (p *Plan) reach(path string) (w walk, reach Reach, err error) {
	at, rest := "/", strings.TrimLeft(path, "/")
	for rest != "" {
		var name string
		name, rest, _ = strings.Cut(rest, "/")
		switch name {
		case "":
			continue
		case ".":
			if err := mustBeDirectory(at); err != nil {
				return walk{}, Inside, err
			}
			continue
		case "..":
			at = filepath.Dir(at)
			continue
		}
		next := filepath.Join(at, name)
		switch {
		case isOwn(next):
			w.spot = spot{path: filepath.Join(next, rest)}
			return w, Own, nil
		case !p.visible(next) && !slices.Contains(minimal, next): // /bin can be a link to what is granted, on every machine
			return walk{}, Outside, nil
		}
		var stat unix.Stat_t
		err := unix.Lstat(next, &stat)
		switch {
		case errors.Is(err, unix.ENOENT):
			w.spot = spot{path: filepath.Join(next, rest), missing: true}
			if !p.visible(w.path) {
				return walk{}, Outside, nil
			}
			return w, Inside, nil
		case err != nil:
			return walk{}, Inside, err
		case stat.Mode&unix.S_IFMT != unix.S_IFLNK:
			at = next
			continue
		case len(w.links) == maxLinks:
			return walk{}, Inside, unix.ELOOP
		}
		target, err := os.Readlink(next)
		if err != nil {
			return walk{}, Inside, err
		}
		w.links = append(w.links, link{path: next, target: target})
		if filepath.IsAbs(target) {
			at = "/"
		}
		rest = strings.TrimLeft(target, "/") + "/" + rest
	}
	var stat unix.Stat_t
	if !p.visible(at) {
		return walk{}, Outside, nil
	}
	if err := unix.Lstat(at, &stat); err != nil {
		return walk{}, Inside, err
	}
	if strings.HasSuffix(path, "/") && stat.Mode&unix.S_IFMT != unix.S_IFDIR {
		return walk{}, Inside, unix.ENOTDIR
	}
	w.spot = found(at, &stat)
	return w, Inside, nil
}

// isOwn reports whether a path is where programs have something of their own.
func isOwn(path string) bool {
	return slices.ContainsFunc(own, func(dir string) bool { return within(path, dir) })
}

// mustBeDirectory fails with ENOTDIR if something visible is none.
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

// visible reports whether a path without links may be looked at: it can be read, something below it can, or it is a link
// on the way to what can, or above one. The root always is: it exists on every machine and in every sandbox.
func (p *Plan) visible(path string) bool {
	if path == "/" || p.Access(path) >= AccessRead {
		return true
	}
	for at, r := range p.rules {
		if r.access >= AccessRead && within(at, path) {
			return true
		}
	}
	return slices.ContainsFunc(p.links, func(l link) bool { return within(l.path, path) })
}
