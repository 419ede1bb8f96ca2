//go:build linux

package guardian

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/procfs"
)

// killDescendants kills all that is left of the server. All of it descends from children of this
// process: the children of the server were reparented to it, and theirs are when they are killed.
// The PID of a child stays valid until it is reaped, which only this goroutine does, so no other
// process can be signalled. It does not give up while processes die.
func (g *guardian) killDescendants() error {
	const shortest, longest = time.Millisecond, 50 * time.Millisecond
	pause, emptyScans, idleScans := shortest, 0, 0
	for {
		remaining, err := g.serverDescendants()
		switch {
		case err != nil:
			return err
		case len(remaining) > 0:
			emptyScans = 0
		case emptyScans > 0 || !hasChildren():
			return nil
		default:
			emptyScans++ // a scan may have missed a process that was just orphaned
			continue
		}
		for _, child := range remaining {
			_ = unix.Kill(child.PID, unix.SIGKILL)
		}
		if reapDead(remaining) {
			pause, idleScans = shortest, 0
		} else {
			pause = min(2*pause, longest)
			idleScans++
		}
		if idleScans == maxIdleScans {
			return fmt.Errorf("processes that it started could not be killed, among them %d", remaining[0].PID)
		}
		<-time.NewTimer(pause).C
	}
}

func hasChildren() bool {
	err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return !errors.Is(err, unix.ECHILD)
}

// serverDescendants lists the children that descend from the server. A process that a server starts
// has a session of its own and can never return to this one. Before its setsid it is in the process
// group of the server. If that is the group of this process, all children count, unless there were
// some before.
func (g *guardian) serverDescendants() (remaining []procfs.Stat, err error) {
	children, err := ownChildren()
	if err != nil {
		return nil, err
	}
	session, err := unix.Getsid(0)
	if err != nil {
		return nil, err
	}
	for _, child := range children {
		if !g.preexisting[child.PID] && (child.Session != session || child.Group == g.server || g.allFromServer) {
			remaining = append(remaining, child)
		}
	}
	return remaining, nil
}

// reapDead reaps the children that are dead, and reports whether there were any.
func reapDead(children []procfs.Stat) (any bool) {
	for _, child := range children {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, child.PID, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		if err != nil || info.Signo == 0 {
			continue
		}
		killGroupOfZombie(child.PID)
		any = true
		_, _ = unix.Wait4(child.PID, nil, 0, nil)
	}
	return any
}

// killGroupOfZombie kills the process group of a zombie, which reserves the ID of the group and
// cannot leave it. This kills the group atomically, so that processes that only fork cannot outrun
// it.
func killGroupOfZombie(zombie int) {
	own, err := unix.Getsid(0)
	if err != nil {
		return
	}
	if p, err := procfs.ReadStat(zombie); err == nil && p.Session != own && p.Group > 1 {
		_ = unix.Kill(-p.Group, unix.SIGKILL)
	}
}

// ownChildren lists the children of this process.
func ownChildren() ([]procfs.Stat, error) {
	procs, err := procfs.List()
	if err != nil {
		return nil, err
	}
	own, children := os.Getpid(), procs[:0]
	for _, p := range procs {
		if p.PPID == own {
			children = append(children, p)
		}
	}
	return children, nil
}
