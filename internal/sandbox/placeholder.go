package sandbox

import (
	"errors"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// placeholders are empty directories that were made so that a mount keeps a program from making something else of that
// name. They stay as long as a program uses them; then they are removed, unless somebody has put something into them.
type placeholders struct {
	mu  sync.Mutex
	all map[string]*placeholder // by path; guarded by mu
}

// placeholder is one of them, or was: somebody outside may have removed it.
type placeholder struct {
	uses     int
	dev, ino uint64
	// lost is how often it had to be made again. Those who used it before are not kept from the place any more.
	lost int
}

// is tells whether the placeholder is what was found in its place.
func (p *placeholder) is(found *unix.Stat_t) bool {
	return p.dev == found.Dev && p.ino == found.Ino && found.Mode&unix.S_IFMT == unix.S_IFDIR
}

// hold keeps a place from coming into being, for a launch, and reports whether there is something to mount over: what
// is there, which may be a placeholder of another program, or one that it makes. It is released by whoever has the
// launch.
func (h *placeholders) hold(path string, l *launch) (bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	dir, err := openPlace(filepath.Dir(path))
	if err != nil {
		return false, err
	}
	defer unix.Close(dir)
	name := filepath.Base(path)
	err = unix.Mkdirat(dir, name, 0o755)
	switch {
	case errors.Is(err, unix.EROFS), errors.Is(err, unix.EACCES) && !owned(dir):
		return false, nil // this user cannot make it, and the program is this user with less power
	case err != nil && !errors.Is(err, unix.EEXIST):
		return false, err
	}
	var found unix.Stat_t
	if err := unix.Fstatat(dir, name, &found, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return false, err
	}
	p := h.all[path]
	switch {
	case err != nil && (p == nil || !p.is(&found)):
		return true, nil // it has come into being: what it is now is not ours to remove
	case p == nil:
		p = &placeholder{dev: found.Dev, ino: found.Ino}
		h.all[path] = p
	case err == nil:
		p.dev, p.ino, p.lost = found.Dev, found.Ino, p.lost+1
	}
	p.uses++
	l.held = append(l.held, path)
	return true, nil
}

// share holds a place if it is a placeholder of another program, which would otherwise take it away with all that is
// mounted there.
func (h *placeholders) share(path string, l *launch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p := h.all[path]; p != nil {
		p.uses++
		l.held = append(l.held, path)
	}
}

// look tells of a place whether it is a placeholder, and whether it was one that is gone, how often that has happened.
func (h *placeholders) look(path string) (held bool, lost int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.all[path]
	if p == nil {
		return false, 0
	}
	var found unix.Stat_t
	if err := unix.Lstat(path, &found); err != nil {
		return false, p.lost + 1 // which it will be when it is held
	}
	return p.is(&found), p.lost
}

// owned tells whether this user may change the mode of an open directory, and then make something in it after all.
func owned(dir int) bool {
	var stat unix.Stat_t
	return unix.Fstat(dir, &stat) != nil || stat.Uid == uint32(unix.Geteuid())
}

// release gives up what was held, parents before what is below them.
func (h *placeholders) release(paths []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, path := range slices.Backward(paths) {
		p := h.all[path]
		if p.uses--; p.uses > 0 {
			continue
		}
		delete(h.all, path)
		dir, err := openPlace(filepath.Dir(path))
		if err != nil {
			continue // it was moved away: nobody finds it any more
		}
		var found unix.Stat_t
		if unix.Fstatat(dir, filepath.Base(path), &found, unix.AT_SYMLINK_NOFOLLOW) == nil && p.is(&found) {
			_ = unix.Unlinkat(dir, filepath.Base(path), unix.AT_REMOVEDIR) // refused if somebody uses it now
		}
		_ = unix.Close(dir)
	}
}
