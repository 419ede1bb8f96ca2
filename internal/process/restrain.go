package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// highestOOMScore is the highest oom_score_adj there is.
const highestOOMScore = 1000

// restraint is what processes have less of than this program, so that they cannot take
// from it what it needs to go on.
type restraint struct {
	oomScore      []byte // what is written to oom_score_adj; nil: nothing
	userProcesses uint64 // RLIMIT_NPROC; 0: that of this program
}

func newRestraint(c Config) (r restraint) {
	r.userProcesses = c.UserProcesses
	if c.OOMScoreAdjust <= 0 {
		return r
	}
	own := 0
	if text, err := os.ReadFile("/proc/self/oom_score_adj"); err == nil {
		own, _ = strconv.Atoi(strings.TrimSpace(string(text)))
	}
	r.oomScore = []byte(strconv.Itoa(min(own+c.OOMScoreAdjust, highestOOMScore)))
	return r
}

// maxEarlyDepth bounds how far descendants are looked for that a child has forked before
// it was restrained.
const maxEarlyDepth = 8

// apply restrains a child that was just forked. What cannot be set is left as it is: a
// program that nobody may look into, which set-user-id programs are, has no limits that
// this program could change.
func (r restraint) apply(pid int) { r.applyTo(pid, 0) }

func (r restraint) applyTo(pid, depth int) {
	if r.oomScore != nil {
		writeProc(pid, "oom_score_adj", r.oomScore)
	}
	if r.userProcesses == 0 {
		return
	}
	var limit unix.Rlimit
	if unix.Prlimit(pid, unix.RLIMIT_NPROC, nil, &limit) != nil {
		return
	}
	limit.Cur, limit.Max = min(limit.Cur, r.userProcesses), min(limit.Max, r.userProcesses)
	if unix.Prlimit(pid, unix.RLIMIT_NPROC, &limit, nil) != nil || depth == maxEarlyDepth {
		return
	}
	// It runs already, and what it forked before has the limit that it had then.
	for _, child := range earlyChildren(pid) {
		r.applyTo(child, depth+1)
	}
}

func writeProc(pid int, name string, text []byte) {
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/"+name, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	_, _ = unix.Write(fd, text)
	_ = unix.Close(fd)
}

// earlyChildren lists the children of a process that has one thread.
func earlyChildren(pid int) (children []int) {
	number := strconv.Itoa(pid)
	text, _ := os.ReadFile("/proc/" + number + "/task/" + number + "/children")
	for field := range strings.FieldsSeq(string(text)) {
		if child, err := strconv.Atoi(field); err == nil {
			children = append(children, child)
		}
	}
	return children
}

var errNoCgroupsInUse = errors.New("processes have no control groups")

// LimitProcesses bounds how many processes and threads there may be in all control groups
// of c together. It fails if the system does not give c a pids controller; then nothing
// has changed.
func (c *Cgroups) LimitProcesses(most uint64) error {
	if c == nil {
		return errNoCgroupsInUse
	}
	return limitGroup(c.place.dir, most)
}

// limitGroup sets pids.max of a control group, and has its parent pass the controller on
// if it does not do so yet.
func limitGroup(dir string, most uint64) error {
	file, text := filepath.Join(dir, "pids.max"), []byte(strconv.FormatUint(most, 10))
	err := writeExisting(file, text)
	if errors.Is(err, os.ErrNotExist) {
		if err := writeExisting(filepath.Join(filepath.Dir(dir), "cgroup.subtree_control"), []byte("+pids")); err != nil {
			return fmt.Errorf("failed to limit processes by a control group: %w", err)
		}
		err = writeExisting(file, text)
	}
	if err != nil {
		return fmt.Errorf("failed to limit processes by a control group: %w", err)
	}
	return nil
}

func writeExisting(path string, text []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	return errors.Join(err, file.Close())
}
