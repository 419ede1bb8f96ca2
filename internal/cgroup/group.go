//go:build linux

package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/procfs"
)

// Group is the control group of one process at a time. It holds no descriptor.
type Group struct {
	pool  *Pool
	name  string      // directory below that of the pool
	dirty atomic.Bool // not to be reused
}

// State returns the name of the group in its pool, for [Pool.Restored], and whether it is not to be
// reused.
func (g *Group) State() (name string, dirty bool) { return g.name, g.dirty.Load() }

// Restored returns the group of a name that [Group.State] returned in the program before.
func (p *Pool) Restored(name string, dirty bool) (*Group, error) {
	if p == nil || name == "" || name != filepath.Base(name) {
		return nil, fmt.Errorf("there is no control group %q", name)
	}
	g := &Group{pool: p, name: name}
	g.dirty.Store(dirty)
	return g, nil
}

func (g *Group) dir() string { return filepath.Join(g.pool.location.dir, g.name) }

// Path returns the path as in /proc/PID/cgroup.
func (g *Group) Path() string { return g.pool.location.path + "/" + g.name }

// Open returns a descriptor for clone.
func (g *Group) Open() (int, error) {
	return unix.Open(g.dir(), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
}

// Populated reports whether the group, or one below it, has processes. A group that cannot be read
// is gone and has none.
func (g *Group) Populated() bool {
	populated, frozen := readEvents(g.dir())
	if frozen {
		g.dirty.Store(true)
	}
	return populated
}

// readEvents reads cgroup.events.
func readEvents(dir string) (populated, frozen bool) {
	text, _ := procfs.ReadSmallFile(dir+"/cgroup.events", make([]byte, 128))
	for line := range bytes.Lines(text) {
		switch string(bytes.TrimSpace(line)) {
		case "populated 1":
			populated = true
		case "frozen 1":
			frozen = true
		}
	}
	return populated, frozen
}

// Kill makes the kernel kill all processes of the group, also those being forked, and reports
// whether it did: kernels before 5.14 cannot.
func (g *Group) Kill() bool {
	g.MarkDirty()
	return kill(g.dir())
}

// MarkDirty prevents the reuse of the group. A group that was killed is not reusable: Linux 6.14
// and later kill any process that is then forked into it from another group, because they compare
// the kill counter of the group with that of the parent's.
func (g *Group) MarkDirty() { g.dirty.Store(true) }

func kill(dir string) bool { return writeExisting(dir+"/cgroup.kill", "1") == nil }

// Members lists the processes of the group and of the groups below it.
func (g *Group) Members() []int { return members(g.dir()) }

func members(dir string) (pids []int) {
	file := dir + "/cgroup.procs"
	text, _ := procfs.ReadSmallFile(file, make([]byte, 1<<10)) // half the time, and enough for most
	if len(text) > 1000 {
		text, _ = os.ReadFile(file)
	}
	for field := range bytes.FieldsSeq(text) {
		if pid, err := strconv.Atoi(string(field)); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	for _, child := range children(dir) {
		pids = append(pids, members(child)...)
	}
	return pids
}

// children lists the groups below a directory. The link count tells without reading that
// there are none.
func children(dir string) (dirs []string) {
	var stat unix.Stat_t
	if err := unix.Lstat(dir, &stat); err != nil || stat.Nlink <= 2 {
		return nil
	}
	entries, _ := os.ReadDir(dir)
	for _, entry := range entries {
		if entry.IsDir() {
			dirs = append(dirs, filepath.Join(dir, entry.Name()))
		}
	}
	return dirs
}

// Release returns the group to its pool, which removes it if it cannot be reused. It must not be
// populated.
func (g *Group) Release() {
	if !g.isReusable() || !g.pool.put(g.name) {
		g.Discard()
	}
}

// Discard removes the group. If it has processes Pool.Close tries again.
func (g *Group) Discard() { _ = removeDirectories(g.dir()) }

// isReusable reports whether the group is as it was created. Its processes may have frozen it or
// created groups below.
func (g *Group) isReusable() bool {
	var stat unix.Stat_t
	err := unix.Lstat(g.dir(), &stat)
	return !g.dirty.Load() && err == nil && stat.Nlink == 2
}

// removeTimeout bounds the wait for the end of killed processes, which may hang in the
// kernel.
const removeTimeout = 5 * time.Second

var errBusy = errors.New("the processes of the control group do not end")

// remove kills the processes of a control group and below, and removes it.
func remove(dir string) error {
	deadline := time.Now().Add(removeTimeout)
	for wait := 200 * time.Microsecond; ; wait = min(2*wait, 10*time.Millisecond) {
		if populated, _ := readEvents(dir); populated && !kill(dir) {
			killMembers(dir)
		}
		err := removeDirectories(dir)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.ENOTEMPTY):
			return err
		case time.Now().After(deadline):
			return errors.Join(errBusy, err)
		}
		<-time.NewTimer(wait).C
	}
}

func removeDirectories(dir string) error {
	for _, child := range children(dir) {
		if err := removeDirectories(child); err != nil {
			return err
		}
	}
	if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
		return &os.PathError{Op: "rmdir", Path: dir, Err: err}
	}
	return nil
}

// killMembers is a substitute for cgroup.kill. It checks that a process is in the group after
// opening its pidfd.
func killMembers(dir string) {
	for _, pid := range members(dir) {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue
		}
		if slices.Contains(members(dir), pid) {
			_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		}
		_ = unix.Close(fd)
	}
}

// Has reports whether the group, or one below it, has that ID.
func (g *Group) Has(id uint64) bool { return findGroup(g.dir(), id, "") != "" }
