package process

import (
	"errors"
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// child is a process that was just started.
type child struct {
	pid    int
	pidfd  *os.File
	cgroup *cgroup // nil: it has none
}

// busyRetries is how often an exec is tried again that failed because the program is open for writing. It was not
// when we looked, most often: another child, forked while the file was being written, holds a copy of the descriptor
// until its own exec. The waits double from 1 ms.
const busyRetries = 5

// spawn forks and executes. If it fails there is no child.
func (s *Supervisor) spawn(spec *Spec, program string, pl *plumbing) (child, error) {
	group := s.config.Cgroups.take()
	for wait := time.Millisecond; ; {
		c, err := s.forkExec(spec, program, pl, group)
		switch {
		case err == nil:
			return c, nil
		case group != nil && mayRefuseCgroup(err):
			group.discard()
			group = nil // if it was not the control group, the next try says so
		case errors.Is(err, unix.ETXTBSY) && wait < 1<<busyRetries*time.Millisecond:
			<-time.NewTimer(wait).C
			wait *= 2
		default:
			if group != nil {
				group.release()
			}
			return child{}, spec.explain(program, err)
		}
	}
}

// mayRefuseCgroup tells errors that a fork fails with when the control group was removed, cannot take processes or is
// beyond an old kernel. Some may be an exec's as well.
func mayRefuseCgroup(err error) bool {
	for _, errno := range []syscall.Errno{unix.ENODEV, unix.EBUSY, unix.EOPNOTSUPP, unix.EACCES, unix.EINVAL, unix.E2BIG} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

// forkExec starts the child in a control group, unless it is nil.
func (s *Supervisor) forkExec(spec *Spec, program string, pl *plumbing, group *cgroup) (child, error) {
	pidfd := -1
	attr := syscall.ProcAttr{
		Dir:   spec.Cwd,
		Env:   spec.Env,
		Files: []uintptr{uintptr(pl.child[0]), uintptr(pl.child[1]), uintptr(pl.child[2])},
		Sys:   &syscall.SysProcAttr{Setsid: true, Setctty: pl.terminal != nil, PidFD: &pidfd, Ptrace: spec.limited()},
	}
	if spec.limited() {
		runtime.LockOSThread() // the thread that forks is the one that traces
		defer runtime.UnlockOSThread()
	}
	if group != nil {
		fd, err := group.open()
		if err != nil {
			return child{}, unix.ENODEV // it was removed
		}
		defer unix.Close(fd)
		attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, fd
	}
	restore := s.inherited.clearMask()
	pid, err := syscall.ForkExec(program, spec.argv(), &attr)
	restore()
	if err != nil {
		return child{}, err
	}
	if pidfd < 0 {
		return child{}, disown(pid, errors.New("the kernel has no pidfds; Linux 5.4 or later is needed"))
	}
	if spec.limited() {
		if err := spec.applyLimits(pid); err != nil {
			_ = unix.Close(pidfd)
			return child{}, disown(pid, err)
		}
	}
	file, err := pollable(pidfd, "pidfd")
	if err != nil {
		return child{}, disown(pid, err)
	}
	return child{pid: pid, pidfd: file, cgroup: group}, nil
}

// disown kills and reaps a child that cannot be watched.
func disown(pid int, err error) error {
	_ = unix.Kill(-pid, unix.SIGKILL)
	for {
		if _, wait := unix.Wait4(pid, nil, 0, nil); !errors.Is(wait, unix.EINTR) {
			return err
		}
	}
}
