package process

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	// cgroupPrefix begins the names of the directories that servers make, so that a later one knows them. Before
	// cgroupLockFile it was "execwire-": servers of both kinds must not take those of the other for leftovers.
	cgroupPrefix = "execwire-server-"
	// cgroupSuffixBytes are random bytes, in hexadecimal digits after the prefix.
	cgroupSuffixBytes = 8
	// maxFreeCgroups is how many are kept for later processes. Making one takes a third of the time of a start.
	maxFreeCgroups = 64
)

// Cgroups makes control groups for processes, in a directory of its own. What a server left behind is known by its lock
// being free. All methods may be called concurrently.
type Cgroups struct {
	place cgroupPlace // of the directory
	file  *os.File    // of it
	lock  *os.File    // see lockCgroup

	mu     sync.Mutex
	free   []string
	next   int
	closed bool
}

// OpenCgroups makes a place for control groups: in this program's own ("auto"), or in a directory of a cgroup v2 tree.
// First it kills what servers that are gone left in control groups there, and removes those. With "off" or "" it
// returns nil, as it does with "auto" when there is no such tree or this user may not write to it; a directory
// that cannot be used is an error. Give the result to [Config], or close it.
func OpenCgroups(where string) (*Cgroups, error) {
	switch where {
	case "", "off":
		return nil, nil
	case "auto":
		place, err := findCgroups("")
		if err != nil {
			return nil, nil
		}
		c, _ := makeCgroups(place)
		return c, nil
	}
	place, err := findCgroups(where)
	if err != nil {
		return nil, cgroupError(where, err)
	}
	c, err := makeCgroups(place)
	if err != nil {
		return nil, cgroupError(place.dir, err)
	}
	return c, nil
}

func cgroupError(dir string, err error) error {
	return fmt.Errorf("failed to use the control groups in %s: %w; "+
		"name a directory of a cgroup v2 tree that this user may write to, or auto, or off", dir, err)
}

// SweepCgroups kills what servers that are gone left in control groups and removes those, as OpenCgroups with the same
// argument does at first. What belongs to a living server is not touched. It waits for the killed to end, but not for
// ever.
func SweepCgroups(where string) error {
	dir := where
	switch where {
	case "", "off":
		return nil
	case "auto":
		dir = ""
	}
	place, err := findCgroups(dir)
	if errors.Is(err, errNoCgroups) {
		return nil
	} else if err != nil {
		return err
	}
	return sweepCgroups(place)
}

func sweepCgroups(place cgroupPlace) error {
	entries, err := os.ReadDir(place.dir)
	if err != nil {
		return err
	}
	var problems []error
	for _, entry := range entries {
		if entry.IsDir() && isCgroupName(entry.Name()) {
			problems = append(problems, sweepLeftover(filepath.Join(place.dir, entry.Name())))
		}
	}
	return errors.Join(problems...)
}

func isCgroupName(name string) bool {
	suffix, ok := strings.CutPrefix(name, cgroupPrefix)
	bytes, err := hex.DecodeString(suffix)
	return ok && err == nil && len(bytes) == cgroupSuffixBytes
}

// sweepLeftover removes the directory of a server that is gone. A server locks its directory before it makes the first
// control group there. So a directory that has some and is not locked then has no server any more, and one that has
// none is removed only as long as it has none. One that this user may not put processes into is another user's.
func sweepLeftover(dir string) error {
	empty := len(cgroupChildren(dir)) == 0
	owned, err := isCgroupLocked(dir)
	switch {
	case owned, errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENODEV):
		return nil // its server lives, or another one was faster
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM), errors.Is(err, unix.EROFS):
		return nil // that of a server of another user, who removes it
	case err != nil:
		return err
	case !empty:
		return removeCgroup(dir)
	}
	err = unix.Rmdir(dir)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EBUSY) || errors.Is(err, unix.ENOTEMPTY) {
		return nil
	}
	return err
}

// cgroupLockFile is the file of a directory that its server holds a lock for writing on. Only who may put processes
// there can open it for writing, which that lock needs: a confined program, or another user, can neither take it nor
// keep a server from having it, as anyone can a lock on the directory.
const cgroupLockFile = "cgroup.procs"

// lockCgroup makes this program the owner of a directory until the file is closed.
func lockCgroup(dir string) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(dir, cgroupLockFile), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// isCgroupLocked reports whether a server owns a directory. Locks for reading, which any program can hold, do not count.
// It fails with EACCES if this user may not put processes there.
func isCgroupLocked(dir string) (bool, error) {
	file, err := os.OpenFile(filepath.Join(dir, cgroupLockFile), os.O_RDWR, 0)
	if err != nil {
		return false, err
	}
	defer file.Close()
	lock := unix.Flock_t{Type: unix.F_RDLCK}
	err = unix.FcntlFlock(file.Fd(), unix.F_OFD_GETLK, &lock)
	return lock.Type != unix.F_UNLCK, err
}

// lockTries is how many directories are made until one can be locked. A program that takes a lock for reading between
// the two steps spoils one of them.
const lockTries = 100

// makeCgroups makes and locks a directory. Another server may take it for a leftover before it is locked: then another
// one is made.
func makeCgroups(parent cgroupPlace) (*Cgroups, error) {
	_ = sweepCgroups(parent) // what does not go away harms nobody
	for try := 1; ; try++ {
		c, err := tryCgroups(parent)
		switch {
		case err == nil:
			return checkCgroups(c)
		case try == lockTries:
			return nil, err
		case !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENODEV):
			return nil, err
		}
	}
}

// tryCgroups fails with EAGAIN if the directory cannot be locked, and with ENOENT or ENODEV if it was removed.
func tryCgroups(parent cgroupPlace) (*Cgroups, error) {
	var suffix [cgroupSuffixBytes]byte
	_, _ = rand.Read(suffix[:]) // never fails
	name := cgroupPrefix + hex.EncodeToString(suffix[:])
	c := &Cgroups{place: cgroupPlace{dir: filepath.Join(parent.dir, name), name: filepath.Join(parent.name, name)}}
	if err := os.Mkdir(c.place.dir, 0o755); err != nil {
		return nil, err
	}
	var err error
	if c.file, err = os.Open(c.place.dir); err != nil {
		return nil, errors.Join(err, unix.Rmdir(c.place.dir))
	}
	if c.lock, err = lockCgroup(c.place.dir); err == nil {
		c.next = 1
		c.free = []string{strconv.Itoa(c.next)}
		if err = unix.Mkdirat(c.fd(), c.free[0], 0o755); err == nil {
			return c, nil
		}
		_ = c.lock.Close()
	}
	_, _ = c.file.Close(), unix.Rmdir(c.place.dir)
	return nil, err
}

// checkCgroups makes sure that processes can be started in it.
func checkCgroups(c *Cgroups) (*Cgroups, error) {
	err := unix.Faccessat(c.fd(), "cgroup.procs", unix.W_OK, unix.AT_EACCESS)
	if kind, _ := os.ReadFile(filepath.Join(c.place.dir, "cgroup.type")); err == nil && strings.TrimSpace(string(kind)) != "domain" {
		err = errors.New("control groups for whole processes cannot be made there")
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *Cgroups) fd() int { return int(c.file.Fd()) }

// take returns a control group with nobody in it, or nil if none can be made. Of a nil Cgroups it always is.
func (c *Cgroups) take() *cgroup {
	if c == nil {
		return nil
	}
	name, made := c.nextName()
	if name == "" {
		return nil
	}
	g := &cgroup{pool: c, name: name}
	if made {
		return g
	}
	// Starts do not wait for each other here: the kernel takes its time.
	if err := os.Mkdir(filepath.Join(c.place.dir, name), 0o755); err != nil {
		return nil
	}
	c.mu.Lock()
	closed := c.closed
	c.mu.Unlock()
	if closed { // Close may not have seen it
		g.discard()
		return nil
	}
	return g
}

// nextName is the name of a control group that nobody else gets: of one that is made, or of one to make. It is empty
// after Close.
func (c *Cgroups) nextName() (name string, made bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return "", false
	}
	if last := len(c.free) - 1; last >= 0 {
		name = c.free[last]
		c.free = c.free[:last]
		return name, true
	}
	c.next++
	return strconv.Itoa(c.next), false
}

// put takes a control group back. One that cannot be used again is removed.
func (c *Cgroups) put(g *cgroup) {
	reusable := g.reusable()
	c.mu.Lock()
	if reusable && !c.closed && len(c.free) < maxFreeCgroups {
		c.free = append(c.free, g.name)
		c.mu.Unlock()
		return
	}
	c.mu.Unlock()
	g.discard()
}

// discard removes a control group. If somebody is in it, Close will try again.
func (c *cgroup) discard() {
	_ = removeCgroupDirectories(filepath.Join(c.pool.place.dir, c.name))
}

// Close kills whoever is left in the control groups and removes them all. It waits for the end of the killed, but not
// for ever. It may be called again.
func (c *Cgroups) Close() error {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	again := c.closed
	c.closed, c.free = true, nil
	c.mu.Unlock()
	if again {
		return nil
	}
	return errors.Join(removeCgroup(c.place.dir), c.file.Close(), c.lock.Close())
}
