package process

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// sweep kills everything that is left of the server. All of it descends from children of this process: the server's
// own became its children when the server ended, and their children do when they are killed. A child's number is
// its own until it is reaped, which nobody else does, so that nobody else can be hit.
func (g *guardian) sweep(deadline time.Time) error {
	const shortest, longest = time.Millisecond, 50 * time.Millisecond
	pause, clean := shortest, 0
	for {
		left, err := g.leftovers()
		switch {
		case err != nil:
			return err
		case len(left) > 0:
			clean = 0
		case clean > 0 || !hasChildren():
			return nil
		default:
			clean++ // a look at all processes takes a while, and one may have been missed that was just orphaned
			continue
		}
		for _, child := range left {
			_ = unix.Kill(child.pid, unix.SIGKILL)
		}
		if reap(left) {
			pause = shortest
		} else {
			pause = min(2*pause, longest)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("processes that it started could not be ended, among them %d", left[0].pid)
		}
		<-time.NewTimer(pause).C
	}
}

func hasChildren() bool {
	err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return !errors.Is(err, unix.ECHILD)
}

// leftovers lists the children that come from the server. What a server starts has a session of its own, and nobody
// ever comes back from there into this one. Until it has, it is in the server's process group; where that is this
// process's own, all children are the server's, unless there were some before.
func (g *guardian) leftovers() (left []procStat, err error) {
	children, err := ownChildren()
	if err != nil {
		return nil, err
	}
	session, err := unix.Getsid(0)
	if err != nil {
		return nil, err
	}
	for _, child := range children {
		if !g.strangers[child.pid] && (child.session != session || child.group == g.server || g.onlyServers) {
			left = append(left, child)
		}
	}
	return left, nil
}

// reap reaps those that are dead, and tells whether any was.
func reap(children []procStat) (any bool) {
	for _, child := range children {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, child.pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		if err != nil || info.Signo == 0 {
			continue
		}
		killGroupOf(child.pid)
		any = true
		_, _ = unix.Wait4(child.pid, nil, 0, nil)
	}
	return any
}

// killGroupOf kills the process group of a zombie, which reserves the group's number and cannot change to another. It
// hits all of it at one instant, so that processes that do nothing but fork cannot outrun it.
func killGroupOf(zombie int) {
	own, err := unix.Getsid(0)
	if err != nil {
		return
	}
	if p, err := readStat(zombie); err == nil && p.session != own && p.group > 1 {
		_ = unix.Kill(-p.group, unix.SIGKILL)
	}
}

// ownChildren lists the children of this process.
func ownChildren() ([]procStat, error) {
	procs, err := readProcs()
	if err != nil {
		return nil, err
	}
	own, children := os.Getpid(), procs[:0]
	for _, p := range procs {
		if p.ppid == own {
			children = append(children, p)
		}
	}
	return children, nil
}
