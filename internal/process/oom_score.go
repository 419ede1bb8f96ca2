package process

import (
	"os"
	"strconv"
	"strings"
	"time"

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

// setOOMScoreLate sets the oom_score_adj of a child that could not do so before its execve. The parent
// resumes in the middle of that, but the child's files in /proc belong to its user only at the end.
// Opening maps waits for the end. That fails if the child may not be inspected then, such as a
// set-user-id program, which keeps the score that it has.
func setOOMScoreLate(pid, pidfd int, score string) {
	const attempts = 10_000
	pause := unix.NsecToTimespec(int64(50 * time.Microsecond))
	for range attempts {
		if setOOMScore(pid, score, 0) {
			return
		}
		fd, err := unix.Open(procfs.Dir(pid)+"/maps", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return
		}
		_ = unix.Close(fd) // the end of execve, or the child still has the memory of this process
		if n, _ := unix.Ppoll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, &pause, nil); n > 0 {
			return // the child has ended
		}
	}
}

// maxDescendantDepth bounds the search for descendants that a child has forked already.
const maxDescendantDepth = 8

// setOOMScore sets the oom_score_adj of a process and of what it has forked by now. It returns false
// if this is not permitted.
func setOOMScore(pid int, score string, depth int) bool {
	fd, err := unix.Open(procfs.Dir(pid)+"/oom_score_adj", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	_, _ = unix.Write(fd, []byte(score))
	_ = unix.Close(fd)
	if depth < maxDescendantDepth {
		children, _ := procfs.Children(pid)
		for _, child := range children {
			setOOMScore(child, score, depth+1)
		}
	}
	return true
}
