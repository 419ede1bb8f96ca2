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
	// cgroupPrefix begins the names of the directories that servers make, so that a later one knows them.
	cgroupPrefix = "execwire-"
	// cgroupSuffixBytes are random bytes, in hexadecimal digits after the prefix.
	cgroupSuffixBytes = 8
	// maxFreeCgroups is how many are kept for later processes. Making one takes a third of the time of a start.
	maxFreeCgroups = 64
)

// Cgroups makes control groups for processes, in a directory of its own that it holds a lock on: what a server left
// behind is known by its lock being free. All methods may be called concurrently.
type Cgroups struct {
	place cgroupPlace // of the directory
	file  *os.File    // of it, locked

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

// sweepLeftover removes the directory of a server that is gone.
func sweepLeftover(dir string) error {
	file, err := lockCgroup(dir)
	if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.ENOENT) {
		return nil // its server lives, or somebody else was faster
	} else if err != nil {
		return err
	}
	defer file.Close()
	return removeCgroup(dir)
}

func lockCgroup(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), dir), nil
}

// makeCgroups makes and locks a directory. Somebody who sweeps may take it for a leftover before it is locked: then
// another one is made.
func makeCgroups(parent cgroupPlace) (*Cgroups, error) {
	_ = sweepCgroups(parent) // what does not go away harms nobody
	for {
		var suffix [cgroupSuffixBytes]byte
		_, _ = rand.Read(suffix[:]) // never fails
		name := cgroupPrefix + hex.EncodeToString(suffix[:])
		dir := filepath.Join(parent.dir, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			return nil, err
		}
		file, err := lockCgroup(dir)
		if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.ENOENT) {
			continue
		} else if err != nil {
			return nil, errors.Join(err, os.Remove(dir))
		}
		if _, err := os.Stat(dir); err != nil {
			_ = file.Close()
			continue
		}
		return checkCgroups(&Cgroups{place: cgroupPlace{dir: dir, name: filepath.Join(parent.name, name)}, file: file})
	}
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
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	if last := len(c.free) - 1; last >= 0 {
		name := c.free[last]
		c.free = c.free[:last]
		return &cgroup{pool: c, name: name}
	}
	c.next++
	name := strconv.Itoa(c.next)
	if err := unix.Mkdirat(c.fd(), name, 0o755); err != nil {
		return nil
	}
	return &cgroup{pool: c, name: name}
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
	return errors.Join(removeCgroup(c.place.dir), c.file.Close())
}
