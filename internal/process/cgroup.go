package process

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// cgroup is the control group of one process at a time. It holds no descriptor.
type cgroup struct {
	pool   *Cgroups
	name   string      // its directory in the pool's
	spoilt atomic.Bool // it is not as it was made
}

// path is what /proc/PID/cgroup calls it.
func (c *cgroup) path() string { return c.pool.place.name + "/" + c.name }

// open returns a descriptor for spawning into it.
func (c *cgroup) open() (int, error) {
	return unix.Openat(c.pool.fd(), c.name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
}

// populated tells whether anybody is in it, or below. A group that cannot be read is gone, and so nobody is.
func (c *cgroup) populated() bool {
	populated, frozen := cgroupState(c.pool.fd(), c.name)
	if frozen {
		c.spoilt.Store(true)
	}
	return populated
}

// cgroupState reads cgroup.events.
func cgroupState(dir int, name string) (populated, frozen bool) {
	fd, err := unix.Openat(dir, name+"/cgroup.events", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, false
	}
	defer unix.Close(fd)
	var buf [128]byte
	n, err := readOnce(uintptr(fd), buf[:])
	if err != nil {
		return false, false
	}
	for line := range bytes.Lines(buf[:n]) {
		switch string(bytes.TrimSpace(line)) {
		case "populated 1":
			populated = true
		case "frozen 1":
			frozen = true
		}
	}
	return populated, frozen
}

// kill has the kernel kill everybody in it, also those who are just being forked, and tells whether it did: kernels
// before 5.14 cannot.
func (c *cgroup) kill() bool {
	c.spoilt.Store(true)
	return killCgroup(c.pool.fd(), c.name)
}

func killCgroup(dir int, name string) bool {
	fd, err := unix.Openat(dir, name+"/cgroup.kill", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte("1"))
	return err == nil
}

// members lists those in it, and in groups that they made below.
func (c *cgroup) members() []int {
	return cgroupMembers(filepath.Join(c.pool.place.dir, c.name))
}

func cgroupMembers(dir string) (pids []int) {
	text, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	for field := range bytes.FieldsSeq(text) {
		if pid, err := strconv.Atoi(string(field)); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	for _, child := range cgroupChildren(dir) {
		pids = append(pids, cgroupMembers(child)...)
	}
	return pids
}

// cgroupChildren lists the directories below one. Each counts as a link to it, so that mostly there is nothing to read.
func cgroupChildren(dir string) (children []string) {
	var stat unix.Stat_t
	if err := unix.Lstat(dir, &stat); err != nil || stat.Nlink <= 2 {
		return nil
	}
	entries, _ := os.ReadDir(dir)
	for _, entry := range entries {
		if entry.IsDir() {
			children = append(children, filepath.Join(dir, entry.Name()))
		}
	}
	return children
}

// release gives it back when populated has said that nobody is left in it.
func (c *cgroup) release() { c.pool.put(c) }

// reusable tells whether it is as it was made: those who were in it could freeze it or make others below. One that was
// killed is not: Linux 6.14 and later kill at once whoever is forked into it from elsewhere, because they compare how
// often it was killed with how often the parent's was.
func (c *cgroup) reusable() bool {
	if c.spoilt.Load() {
		return false
	}
	var stat unix.Stat_t
	err := unix.Fstatat(c.pool.fd(), c.name, &stat, unix.AT_SYMLINK_NOFOLLOW)
	return err == nil && stat.Nlink == 2
}

// cgroupPatience bounds how long the end of those in a control group is waited for: they may hang in the system.
const cgroupPatience = 5 * time.Second

var errCgroupBusy = errors.New("processes in the control group do not end")

// removeCgroup kills everybody in a control group and below, and removes it.
func removeCgroup(dir string) error {
	deadline := time.Now().Add(cgroupPatience)
	for wait := 200 * time.Microsecond; ; wait = min(2*wait, 10*time.Millisecond) {
		if populated, _ := cgroupState(unix.AT_FDCWD, dir); populated && !killCgroup(unix.AT_FDCWD, dir) {
			killCgroupMembers(dir)
		}
		err := removeCgroupDirectories(dir)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.ENOTEMPTY):
			return err
		case time.Now().After(deadline):
			return errors.Join(errCgroupBusy, err)
		}
		<-time.NewTimer(wait).C
	}
}

func removeCgroupDirectories(dir string) error {
	for _, child := range cgroupChildren(dir) {
		if err := removeCgroupDirectories(child); err != nil {
			return err
		}
	}
	if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
		return &os.PathError{Op: "rmdir", Path: dir, Err: err}
	}
	return nil
}

// killCgroupMembers does what cgroup.kill would. A pidfd is made sure to be of somebody in the group before it is used.
func killCgroupMembers(dir string) {
	for _, pid := range cgroupMembers(dir) {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue
		}
		if slices.Contains(cgroupMembers(dir), pid) {
			_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		}
		_ = unix.Close(fd)
	}
}
