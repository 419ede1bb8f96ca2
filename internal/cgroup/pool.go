//go:build linux

package cgroup

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	// prefix begins the names of the directories of servers, by which later servers recognise
	// them. Older servers, which do not use lockFile, have the prefix "execwire-"; neither
	// kind may remove the directories of the other.
	prefix = "execwire-server-"
	// suffixBytes is the number of random bytes after the prefix, written in hexadecimal.
	suffixBytes = 8
	// MaxFree bounds the groups that are kept for later processes. Creating one takes a
	// third of the time of a start.
	MaxFree = 64
)

// Pool is a pool of control groups in a directory of its own. The directory is locked while its
// server lives. All methods may be called concurrently.
type Pool struct {
	location location // of the directory
	lock     *os.File // see lockDir
	outside  outside

	mu     sync.Mutex
	free   []string
	next   int
	closed bool
}

// Open creates a pool below the control group of this program ("auto"), or below a directory
// of a cgroup v2 tree. It first calls RemoveStale. It returns nil for "off" and "", and for
// "auto" if there is no such tree or this user may not write to it. A directory that cannot be used
// is an error.
func Open(setting string) (*Pool, error) {
	switch setting {
	case "", "off":
		return nil, nil
	case "auto":
		location, err := findLocation("")
		if err != nil {
			return nil, nil
		}
		p, _ := newPool(location)
		return p, nil
	}
	location, err := findLocation(setting)
	if err != nil {
		return nil, openError(setting, err)
	}
	p, err := newPool(location)
	if err != nil {
		return nil, openError(location.dir, err)
	}
	return p, nil
}

func openError(dir string, err error) error {
	return fmt.Errorf("failed to use the control groups in %s: %w; "+
		"name a directory of a cgroup v2 tree that this user may write to, or auto, or off", dir, err)
}

// RemoveStale kills the processes in the control groups of dead servers, and removes the
// groups. It does nothing to the groups of a living server. The setting is that of Open. It
// waits for the end of the killed processes, for a limited time.
func RemoveStale(setting string) error {
	dir := setting
	switch setting {
	case "", "off":
		return nil
	case "auto":
		dir = ""
	}
	location, err := findLocation(dir)
	if errors.Is(err, errNoTree) {
		return nil
	} else if err != nil {
		return err
	}
	return removeStale(location)
}

func removeStale(location location) error {
	entries, err := os.ReadDir(location.dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, entry := range entries {
		if entry.IsDir() && isPoolName(entry.Name()) {
			errs = append(errs, removeStaleDir(filepath.Join(location.dir, entry.Name())))
		}
	}
	return errors.Join(errs...)
}

func isPoolName(name string) bool {
	suffix, ok := strings.CutPrefix(name, prefix)
	bytes, err := hex.DecodeString(suffix)
	return ok && err == nil && len(bytes) == suffixBytes
}

// removeStaleDir removes the directory of a dead server. A server locks its directory before it
// creates the first group there. So a directory with groups that is not locked has no server, and a
// directory without groups is removed only if that is still so. If this user may not put processes
// into a directory it belongs to the server of another user.
func removeStaleDir(dir string) error {
	empty := len(children(dir)) == 0
	locked, err := isLocked(dir)
	switch {
	case locked, errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENODEV):
		// Its server lives, or another server has removed it.
		return nil
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM), errors.Is(err, unix.EROFS):
		// It belongs to another user, whose server removes it.
		return nil
	case err != nil:
		return err
	case !empty:
		return remove(dir)
	}
	err = unix.Rmdir(dir)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EBUSY) || errors.Is(err, unix.ENOTEMPTY) {
		return nil
	}
	return err
}

// lockFile is the file of a directory on which its server holds a write lock. The lock needs
// the file open for writing, which needs permission to move processes there. So a confined program
// or another user cannot hold it, and because newPool tries again, cannot block it either. Any
// program could lock the directory itself.
const lockFile = "cgroup.procs"

// lockDir locks a directory for this program until the file is closed.
func lockDir(dir string) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// isLocked reports whether a server has locked a directory. Read locks, which any program can
// hold, do not count. It fails with EACCES if this user may not put processes there.
func isLocked(dir string) (bool, error) {
	file, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR, 0)
	if err != nil {
		return false, err
	}
	defer file.Close()
	lock := unix.Flock_t{Type: unix.F_RDLCK}
	err = unix.FcntlFlock(file.Fd(), unix.F_OFD_GETLK, &lock)
	return lock.Type != unix.F_UNLCK, err
}

// maxLockAttempts bounds how many directories are created until one can be locked. A program can
// prevent that by taking a read lock between the two steps.
const maxLockAttempts = 100

// newPool creates and locks a directory. It tries again if another server removes the directory
// before it is locked.
func newPool(parent location) (*Pool, error) {
	_ = removeStale(parent) // a failure does no harm
	for attempt := 1; ; attempt++ {
		p, err := tryNewPool(parent)
		switch {
		case err == nil:
			if err := p.check(); err != nil {
				return nil, errors.Join(err, p.Close())
			}
			return p, nil
		case attempt == maxLockAttempts:
			return nil, err
		case !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENODEV):
			return nil, err
		}
	}
}

// tryNewPool fails with EAGAIN if the directory cannot be locked, and with ENOENT or ENODEV if it
// was removed.
func tryNewPool(parent location) (*Pool, error) {
	var suffix [suffixBytes]byte
	_, _ = rand.Read(suffix[:]) // never fails
	name := prefix + hex.EncodeToString(suffix[:])
	p := &Pool{location: location{dir: filepath.Join(parent.dir, name), path: filepath.Join(parent.path, name)}, next: 1, free: []string{"1"}}
	if err := os.Mkdir(p.location.dir, 0o755); err != nil {
		return nil, err
	}
	var err error
	if p.lock, err = lockDir(p.location.dir); err == nil {
		if err = os.Mkdir(filepath.Join(p.location.dir, p.free[0]), 0o755); err == nil {
			return p, nil
		}
		_ = p.lock.Close()
	}
	_ = unix.Rmdir(p.location.dir)
	return nil, err
}

// State is what another program needs to go on with a pool.
type State struct {
	Dir, Path string   // of the pool: in the file system, and as in /proc/PID/cgroup
	Lock      *os.File // has the lock of the directory, which belongs to the open file
	Free      []string // names of the groups that are kept for later processes
	Next      int      // the last number that was a name
}

// State returns the state of the pool, or nil for a nil pool. Its file is that of the pool.
func (p *Pool) State() *State {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return &State{Dir: p.location.dir, Path: p.location.path, Lock: p.lock, Free: slices.Clone(p.free), Next: p.next}
}

// Restore returns the pool of a state, and owns its file. It returns nil for a nil state.
func Restore(state *State) *Pool {
	if state == nil {
		return nil
	}
	return &Pool{location: location{dir: state.Dir, path: state.Path}, lock: state.Lock, free: slices.Clone(state.Free), next: state.Next}
}

// check checks that processes can be started in the groups.
func (p *Pool) check() error {
	if err := unix.Faccessat(unix.AT_FDCWD, p.location.dir+"/cgroup.procs", unix.W_OK, unix.AT_EACCESS); err != nil {
		return err
	}
	if kind, _ := os.ReadFile(p.location.dir + "/cgroup.type"); strings.TrimSpace(string(kind)) != "domain" {
		return errors.New("it is not a domain control group")
	}
	return nil
}

// Dir returns the directory of the pool.
func (p *Pool) Dir() string { return p.location.dir }

// Get returns an empty control group, or nil if there is none. It returns nil for a nil pool.
func (p *Pool) Get() *Group {
	if p == nil {
		return nil
	}
	name, exists := p.nextName()
	if name == "" {
		return nil
	}
	g := &Group{pool: p, name: name}
	// Not under mu, because the kernel takes long. Close removes the group if it comes meanwhile.
	if !exists && os.Mkdir(g.dir(), 0o755) != nil {
		return nil
	}
	return g
}

// nextName reserves the name of a group, and reports whether it exists. It is empty after Close.
func (p *Pool) nextName() (name string, exists bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return "", false
	}
	if last := len(p.free) - 1; last >= 0 {
		name = p.free[last]
		p.free = p.free[:last]
		return name, true
	}
	p.next++
	return strconv.Itoa(p.next), false
}

// put keeps a group for later processes, and reports whether it did.
func (p *Pool) put(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.free) >= MaxFree {
		return false
	}
	p.free = append(p.free, name)
	return true
}

// Close kills the processes of the control groups and removes the groups. It waits for the end of
// the processes, for a limited time. It may be called again.
func (p *Pool) Close() error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	alreadyClosed := p.closed
	p.closed, p.free = true, nil
	p.mu.Unlock()
	if alreadyClosed {
		return nil
	}
	return errors.Join(remove(p.location.dir), p.lock.Close())
}

// LimitProcesses bounds the processes and threads in all control groups of the pool together. It
// fails without effect if the pool has no pids controller.
func (p *Pool) LimitProcesses(limit uint64) error {
	if p == nil {
		return errors.New("processes have no control groups")
	}
	if err := limitProcesses(p.location.dir, strconv.FormatUint(limit, 10)); err != nil {
		return fmt.Errorf("failed to limit processes by a control group: %w", err)
	}
	return nil
}

// limitProcesses sets pids.max of a control group, and enables the controller in its parent if
// necessary.
func limitProcesses(dir, limit string) error {
	file := filepath.Join(dir, "pids.max")
	err := writeExisting(file, limit)
	if errors.Is(err, os.ErrNotExist) {
		if err := writeExisting(filepath.Join(filepath.Dir(dir), "cgroup.subtree_control"), "+pids"); err != nil {
			return err
		}
		err = writeExisting(file, limit)
	}
	return err
}

func writeExisting(path, text string) error {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	return errors.Join(err, file.Close())
}
