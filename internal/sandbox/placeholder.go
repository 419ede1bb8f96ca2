package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// placeholders are empty directories at paths that must not come into existence. A
// mount on a placeholder keeps the program from creating a file there. A placeholder
// exists while programs use it, possibly those of several servers: each server holds a
// lock on it. The last one removes it, unless another process has put something into
// it. A placeholder that a killed server has left is reused.
type placeholders struct {
	mu  sync.Mutex
	all map[string]*placeholder // by path; guarded by mu
}

// placeholder is a placeholder, which another process may have removed.
type placeholder struct {
	uses int
	id   fileID
	lock *os.File // shared; also keeps the inode from being reused
	// recreated is how often the placeholder was removed by others and created again.
	// Programs started before can create a file at the path.
	recreated int
}

// placeholderMode distinguishes placeholders from other empty directories: the sticky
// bit is of no use where others cannot write.
const placeholderMode = unix.S_ISVTX | 0o755

// looksLikePlaceholder reports whether a file may be a placeholder. Directories of
// other users are not: they could keep them locked.
func looksLikePlaceholder(stat *unix.Stat_t) bool {
	ours := stat.Uid == 0 || stat.Uid == uint32(unix.Geteuid())
	return ours && stat.Mode&unix.S_IFMT == unix.S_IFDIR && stat.Mode&(unix.S_ISVTX|0o022) == unix.S_ISVTX
}

// isPlaceholder reports whether a directory that looks like a placeholder is empty. The
// path has no links.
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
		if _, count, _ := unix.ParseDirent(entries[:n], 1, nil); count > 0 { // does not count "." and ".."
			return false
		}
	}
}

// placeholderTries is how often acquire tries to lock a placeholder that another server
// is removing.
const placeholderTries = 100

// acquire ensures that there is something to mount on at a path: an existing file, or a
// placeholder, which it creates if necessary. It returns false if neither this user nor
// the program can create the path. The placeholder belongs to the launch until release.
func (h *placeholders) acquire(path string, l *launch) (bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	dir, err := openNoSymlinks(filepath.Dir(path))
	if err != nil {
		return false, err
	}
	defer unix.Close(dir)
	for try := 0; ; try++ {
		err := unix.Mkdirat(dir, filepath.Base(path), placeholderMode)
		switch {
		case errors.Is(err, unix.EROFS), errors.Is(err, unix.EACCES) && !ownsDirectory(dir):
			return false, nil // the program, with fewer privileges, cannot create it either
		case err != nil && !errors.Is(err, unix.EEXIST):
			return false, err
		}
		there, err := h.lock(dir, path)
		switch {
		case err == nil && !there:
			return true, nil // created by another process, so it is not removed
		case err == nil:
			h.all[path].uses++
			l.placeholders = append(l.placeholders, path)
			return true, nil
		case try == placeholderTries && errors.Is(err, unix.EWOULDBLOCK):
			return true, nil // locked for long, which must not prevent starts
		case try == placeholderTries:
			return false, err
		}
		<-time.NewTimer(time.Millisecond).C
	}
}

// lock locks the file at a path in an open directory if it is a placeholder, and
// reports whether it is. mu is held.
func (h *placeholders) lock(dir int, path string) (bool, error) {
	var found unix.Stat_t
	if err := unix.Fstatat(dir, filepath.Base(path), &found, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return false, err
	}
	p := h.all[path]
	if p != nil && p.id == fileIDOf(&found) {
		return true, nil
	}
	if !looksLikePlaceholder(&found) || !isPlaceholder(path) {
		return false, nil
	}
	lock, id, err := lockPlaceholder(dir, path)
	if err != nil {
		return false, err
	}
	if p == nil {
		p = &placeholder{}
		h.all[path] = p
	} else {
		_ = p.lock.Close()
		p.recreated++
	}
	p.id, p.lock = id, lock
	return true, nil
}

// lockPlaceholder opens and locks a placeholder in an open directory, so that other
// servers do not remove it. It fails if it is being removed.
func lockPlaceholder(dir int, path string) (lock *os.File, id fileID, err error) {
	name := filepath.Base(path)
	var stat, locked unix.Stat_t
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fileID{}, err
	}
	err = unix.Flock(fd, unix.LOCK_SH|unix.LOCK_NB)
	if err == nil {
		err = unix.Fstatat(dir, name, &stat, unix.AT_SYMLINK_NOFOLLOW)
	}
	if err == nil {
		err = unix.Fstat(fd, &locked)
	}
	if err == nil && fileIDOf(&stat) != fileIDOf(&locked) {
		err = unix.ESTALE // it was removed before it was locked
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, fileID{}, err
	}
	return os.NewFile(uintptr(fd), path), fileIDOf(&locked), nil
}

// acquireExisting keeps the placeholder at a path, if there is one. Without it the last
// user would remove the directory, and all mounts on it.
func (h *placeholders) acquireExisting(path string, l *launch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p := h.all[path]; p != nil {
		p.uses++
		l.placeholders = append(l.placeholders, path)
	}
}

// lookup reports whether the file at a path is its placeholder, and how often that was
// recreated.
func (h *placeholders) lookup(path string, found fileID) (isPlaceholder bool, recreated int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.all[path]
	if p == nil {
		return false, 0
	}
	if found == (fileID{}) {
		return false, p.recreated + 1 // as it will be once acquired
	}
	return p.id == found, p.recreated
}

// ownsDirectory reports whether this user owns an open directory, and so could make it
// writable.
func ownsDirectory(dir int) bool {
	var stat unix.Stat_t
	return unix.Fstat(dir, &stat) != nil || stat.Uid == uint32(unix.Geteuid())
}

// release releases the placeholders of a launch. Directories are listed before their
// contents.
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

// remove removes the directory unless another server uses it or it is not empty. Then
// it is no placeholder any more.
func (p *placeholder) remove(path string) {
	fd := int(p.lock.Fd())
	if unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) != nil {
		return
	}
	dir, err := openNoSymlinks(filepath.Dir(path))
	if err != nil {
		return // it was moved
	}
	defer unix.Close(dir)
	var found unix.Stat_t
	if unix.Fstatat(dir, filepath.Base(path), &found, unix.AT_SYMLINK_NOFOLLOW) != nil || p.id != fileIDOf(&found) {
		return
	}
	if errors.Is(unix.Unlinkat(dir, filepath.Base(path), unix.AT_REMOVEDIR), unix.ENOTEMPTY) {
		_ = unix.Fchmod(fd, found.Mode&0o777)
	}
}

// Usage is what a running program uses of its [Sandboxes].
type Usage struct {
	placeholders *placeholders
	paths        []string
}

// Release ends the usage, when the program and its descendants have ended. It is called
// once, and may wait for a file system.
func (u *Usage) Release() { u.placeholders.release(u.paths) }

// Placeholder is a directory that running programs use, as another program of this server
// needs it to go on; see [Sandboxes.Restore].
type Placeholder struct {
	// Path is where it is.
	Path string
	// Lock is a descriptor of it, with a lock that belongs to the open file.
	Lock *os.File
	// Recreated is how often other processes have removed it.
	Recreated int
}

// Placeholders returns what the usage consists of. The files are those of the Sandboxes.
func (u *Usage) Placeholders() (all []Placeholder) {
	u.placeholders.mu.Lock()
	defer u.placeholders.mu.Unlock()
	for _, path := range u.paths {
		p := u.placeholders.all[path]
		all = append(all, Placeholder{Path: path, Lock: p.lock, Recreated: p.recreated})
	}
	return all
}

// Restore adds placeholders of programs that another program of this server has started,
// and owns their files. Each is removed when all its usages, see [Sandboxes.Use], are
// released. An error means that one of the files is no directory.
func (s *Sandboxes) Restore(placeholders []Placeholder) error {
	h := &s.placeholders
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, saved := range placeholders {
		var stat unix.Stat_t
		if err := unix.Fstat(int(saved.Lock.Fd()), &stat); err != nil || stat.Mode&unix.S_IFMT != unix.S_IFDIR {
			return fmt.Errorf("the placeholder %s is no directory: %w", saved.Path, errors.Join(err, unix.ENOTDIR))
		}
		h.all[saved.Path] = &placeholder{id: fileIDOf(&stat), lock: saved.Lock, recreated: saved.Recreated}
	}
	return nil
}

// Use returns a usage of placeholders that were restored, for a program that uses them.
func (s *Sandboxes) Use(paths []string) (*Usage, error) {
	h := &s.placeholders
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, path := range paths {
		if h.all[path] == nil {
			return nil, fmt.Errorf("there is no placeholder %s", path)
		}
	}
	for _, path := range paths {
		h.all[path].uses++
	}
	return &Usage{placeholders: h, paths: slices.Clone(paths)}, nil
}
