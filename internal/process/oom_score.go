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

// oomScore returns the oom_score_adj of processes, or "" if it is that of this program.
func (c Config) oomScore() string {
	if c.OOMScoreAdjust <= 0 {
		return ""
	}
	own := 0
	if text, err := os.ReadFile("/proc/self/oom_score_adj"); err == nil {
		own, _ = strconv.Atoi(strings.TrimSpace(string(text)))
	}
	return strconv.Itoa(min(own+c.OOMScoreAdjust, maxOOMScore))
}

// maxDescendantDepth bounds the search for descendants that a child has forked already.
const maxDescendantDepth = 8

// setOOMScore sets the oom_score_adj of a child that runs already and could not do so itself, and
// of what it has forked by now. Programs for which this is not permitted keep the one they have,
// such as set-user-id programs.
func setOOMScore(pid int, score string, depth int) {
	fd, err := unix.Open(procfs.Dir(pid)+"/oom_score_adj", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	_, _ = unix.Write(fd, []byte(score))
	_ = unix.Close(fd)
	if depth == maxDescendantDepth {
		return
	}
	children, _ := procfs.Children(pid)
	for _, child := range children {
		setOOMScore(child, score, depth+1)
	}
}
