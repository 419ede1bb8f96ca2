package process

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/procfs"
)

// maxOOMScore is the highest value of oom_score_adj.
const maxOOMScore = 1000

// childLimits restricts processes relative to this program, so that they cannot exhaust what it
// needs to keep running.
type childLimits struct {
	oomScore      []byte // value of oom_score_adj; nil: unchanged
	userProcesses uint64 // RLIMIT_NPROC; 0: unchanged
}

func newChildLimits(c Config) (l childLimits) {
	l.userProcesses = c.UserProcesses
	if c.OOMScoreAdjust <= 0 {
		return l
	}
	own := 0
	if text, err := os.ReadFile("/proc/self/oom_score_adj"); err == nil {
		own, _ = strconv.Atoi(strings.TrimSpace(string(text)))
	}
	l.oomScore = []byte(strconv.Itoa(min(own+c.OOMScoreAdjust, maxOOMScore)))
	return l
}

// maxDescendantDepth bounds the search for descendants that a child forked before its limits were
// set.
const maxDescendantDepth = 8

// apply restricts a child that was just forked. What cannot be set is skipped: this program may not
// change the limits of set-user-id programs.
func (l childLimits) apply(pid int) { l.applyTo(pid, 0) }

func (l childLimits) applyTo(pid, depth int) {
	if l.oomScore != nil {
		writeProc(pid, "oom_score_adj", l.oomScore)
	}
	if l.userProcesses == 0 {
		return
	}
	var limit unix.Rlimit
	if unix.Prlimit(pid, unix.RLIMIT_NPROC, nil, &limit) != nil {
		return
	}
	limit.Cur, limit.Max = min(limit.Cur, l.userProcesses), min(limit.Max, l.userProcesses)
	if unix.Prlimit(pid, unix.RLIMIT_NPROC, &limit, nil) != nil || depth == maxDescendantDepth {
		return
	}
	// The child runs already. What it has forked inherited the old limit.
	children, _ := procfs.Children(pid)
	for _, child := range children {
		l.applyTo(child, depth+1)
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
