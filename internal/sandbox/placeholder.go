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
	mu   sync.Mutex
	uses map[string]int // guarded by mu
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
	err = unix.Mkdirat(dir, filepath.Base(path), 0o755)
	switch {
	case errors.Is(err, unix.EEXIST) && h.uses[path] == 0:
		return true, nil // it has come into being: what it is now is not ours to remove
	case errors.Is(err, unix.EROFS), errors.Is(err, unix.EACCES):
		return false, nil // this user cannot make it, and the program is this user with less power
	case err != nil && !errors.Is(err, unix.EEXIST):
		return false, err
	}
	h.uses[path]++
	l.held = append(l.held, path)
	return true, nil
}

// share holds a place if it is a placeholder of another program, which would otherwise take it away with all that is
// mounted there.
func (h *placeholders) share(path string, l *launch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.uses[path] > 0 {
		h.uses[path]++
		l.held = append(l.held, path)
	}
}

// release gives up what was held, parents before what is below them.
func (h *placeholders) release(paths []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, path := range slices.Backward(paths) {
		if h.uses[path]--; h.uses[path] > 0 {
			continue
		}
		delete(h.uses, path)
		dir, err := openPlace(filepath.Dir(path))
		if err != nil {
			continue // it was moved away: nobody finds it any more
		}
		_ = unix.Unlinkat(dir, filepath.Base(path), unix.AT_REMOVEDIR) // refused if somebody uses it now
		_ = unix.Close(dir)
	}
}
