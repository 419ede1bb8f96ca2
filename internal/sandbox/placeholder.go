package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// placeholders are empty directories that were made so that a mount keeps a program from making something else of that
// name. They stay as long as a program uses them, of this server or of another, which is what the lock on each is for;
// then they are removed, unless somebody has put something into them. One that a killed server has left is the next
// one's.
type placeholders struct {
	mu  sync.Mutex
	all map[string]*placeholder // by path; guarded by mu
}

// placeholder is one of them, or was: somebody outside may have removed it.
type placeholder struct {
	uses int
	is   identity
	lock *os.File // keeps other servers from removing it, and another file from having its identity
	// lost is how often it had to be made again. Those who used it before are not kept from the place any more.
	lost int
}

// placeholderMode tells a placeholder from any other empty directory, from the moment that it is made: where others
// cannot write anyway nobody sets the sticky bit.
const placeholderMode = unix.S_ISVTX | 0o755

// looksKept tells whether something may be a placeholder. That of another user is none: the user could keep it locked.
func looksKept(stat *unix.Stat_t) bool {
	ours := stat.Uid == 0 || stat.Uid == uint32(unix.Geteuid())
	return ours && stat.Mode&unix.S_IFMT == unix.S_IFDIR && stat.Mode&(unix.S_ISVTX|0o022) == unix.S_ISVTX
}

// isPlaceholder tells whether what looks like one at a path without links is a placeholder, of whatever server.
func isPlaceholder(path string) bool {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	var entries [1024]byte
	for {
		n, err := unix.Getdents(fd, entries[:])
		if err != nil || n == 0 {
			return err == nil
		}
		if _, count, _ := unix.ParseDirent(entries[:n], 1, nil); count > 0 { // which leaves "." and ".." out
			return false
		}
	}
}

// placeholderTries is how often it is tried to get hold of a placeholder that another server is removing.
const placeholderTries = 100

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
	for try := 0; ; try++ {
		err := unix.Mkdirat(dir, filepath.Base(path), placeholderMode)
		switch {
		case errors.Is(err, unix.EROFS), errors.Is(err, unix.EACCES) && !owned(dir):
			return false, nil // this user cannot make it, and the program is this user with less power
		case err != nil && !errors.Is(err, unix.EEXIST):
			return false, err
		}
		there, err := h.lock(dir, path)
		switch {
		case err == nil && !there:
			return true, nil // it has come into being: what it is now is not ours to remove
		case err == nil:
			h.all[path].uses++
			l.held = append(l.held, path)
			return true, nil
		case try == placeholderTries && errors.Is(err, unix.EWOULDBLOCK):
			return true, nil // no server removes it for so long: whoever has it locked must not keep programs from starting
		case try == placeholderTries:
			return false, err
		}
		<-time.NewTimer(time.Millisecond).C
	}
}

// lock makes what is at a path, in an open directory, one of these placeholders, and tells whether it is one. Called
// with mu held.
func (h *placeholders) lock(dir int, path string) (bool, error) {
	var found unix.Stat_t
	if err := unix.Fstatat(dir, filepath.Base(path), &found, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return false, err
	}
	p := h.all[path]
	if p != nil && p.is == identityOf(&found) {
		return true, nil
	}
	if !looksKept(&found) || !isPlaceholder(path) {
		return false, nil
	}
	lock, err := lockPlaceholder(dir, path)
	if err != nil {
		return false, err
	}
	if err := unix.Fstat(int(lock.Fd()), &found); err != nil {
		_ = lock.Close()
		return false, err
	}
	if p == nil {
		p = &placeholder{}
		h.all[path] = p
	} else {
		_ = p.lock.Close()
		p.lost++
	}
	p.is, p.lock = identityOf(&found), lock
	return true, nil
}

// lockPlaceholder keeps other servers from removing a placeholder, whose directory is open. It fails if somebody is
// removing it.
func lockPlaceholder(dir int, path string) (*os.File, error) {
	name := filepath.Base(path)
	var stat, locked unix.Stat_t
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(fd, unix.LOCK_SH|unix.LOCK_NB)
	if err == nil {
		err = unix.Fstatat(dir, name, &stat, unix.AT_SYMLINK_NOFOLLOW)
	}
	if err == nil {
		err = unix.Fstat(fd, &locked)
	}
	if err == nil && (stat.Dev != locked.Dev || stat.Ino != locked.Ino) {
		err = unix.ESTALE // it was removed before it was locked
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
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

// look tells of a place, and what is there, whether that is its placeholder, and how often one was lost.
func (h *placeholders) look(path string, found identity) (held bool, lost int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.all[path]
	if p == nil {
		return false, 0
	}
	if found == (identity{}) {
		return false, p.lost + 1 // which it will be when it is held
	}
	return p.is == found, p.lost
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
		p.remove(path)
		_ = p.lock.Close()
	}
}

// remove removes a placeholder unless another server uses it. If somebody has put something into it, it is theirs.
func (p *placeholder) remove(path string) {
	fd := int(p.lock.Fd())
	if unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) != nil {
		return
	}
	dir, err := openPlace(filepath.Dir(path))
	if err != nil {
		return // it was moved away: nobody finds it any more
	}
	defer unix.Close(dir)
	var found unix.Stat_t
	if unix.Fstatat(dir, filepath.Base(path), &found, unix.AT_SYMLINK_NOFOLLOW) != nil || p.is != identityOf(&found) {
		return
	}
	if errors.Is(unix.Unlinkat(dir, filepath.Base(path), unix.AT_REMOVEDIR), unix.ENOTEMPTY) {
		_ = unix.Fchmod(fd, found.Mode&0o777)
	}
}
