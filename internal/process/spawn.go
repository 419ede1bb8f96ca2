package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/sandbox"
)

// child is a process that was just started.
type child struct {
	pid    int // 0: there is none
	pidfd  *os.File
	cgroup *cgroup // nil: it has none
	// release is to be called when nothing of it is left. Nil: it is not confined.
	release func()
}

// busyRetries is how often an exec is tried again that failed because the program is open for writing. It was not
// when we looked, most often: another child, forked while the file was being written, holds a copy of the descriptor
// until its own exec. The waits double from 1 ms.
const busyRetries = 5

// spawn forks and executes. If it fails there can still be a child, of a sandbox that did not come to execute the
// program: it is to be killed with all it has.
func (s *Supervisor) spawn(ctx context.Context, spec *Spec, program string, pl *plumbing) (child, error) {
	what := spec.program(program, pl)
	group := s.config.Cgroups.take()
	for wait := time.Millisecond; ; {
		s.noteReachable(spec, group)
		c, err := s.launch(ctx, spec, what, group)
		switch {
		case err == nil:
			return c, nil
		case c.pid != 0:
			return c, spec.explainConfined(program, err)
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
			if spec.Sandbox != nil {
				err = spec.explainConfined(program, err)
			} else {
				err = spec.explain(program, err)
			}
			return child{}, err
		}
	}
}

// program is what is to be executed, as if nothing confined it.
func (s *Spec) program(path string, pl *plumbing) sandbox.Program {
	p := sandbox.Program{Path: path, Argv: s.argv(), Env: s.Env, Dir: s.Cwd, Files: pl.child[:], Terminal: -1}
	if pl.terminal != nil {
		p.Terminal = 0
	}
	if s.Sandbox != nil {
		p.Path = s.fromCwd(path)
	}
	return p
}

// launch starts what was asked for in a control group, unless that is nil, and confined if it is to be. It is ctx's to
// end only if it is confined.
func (s *Supervisor) launch(ctx context.Context, spec *Spec, what sandbox.Program, group *cgroup) (c child, err error) {
	if spec.Sandbox == nil {
		return s.forkExec(spec, what, group)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.ctx, func() { cancel(errClosing()) })()
	unwatch := func() {}
	release, err := spec.Sandbox.Start(ctx, what, func(wrapped sandbox.Program) (err error) {
		if c, err = s.forkExec(spec, wrapped, group); err == nil && spec.Sandbox.Report().ExitByCode {
			unwatch = c.watch(func() { cancel(spec.errStandInEnded()) })
		}
		return err
	})
	unwatch()
	c.release = release
	switch cause := context.Cause(ctx); {
	case cause == nil || !errors.Is(err, cause): // it had failed before
	case KindOf(cause) != 0:
		err = cause
	default:
		err = fmt.Errorf("failed to start process: %w", cause)
	}
	return c, err
}

// errStandInEnded is what a start fails with if who stands for the program was killed, by a limit perhaps, and has left
// somebody who waits for it for ever.
func (s *Spec) errStandInEnded() error {
	return s.notStarted("", errors.New("bubblewrap was ended before the program began"))
}

// watch calls ended when the child ends, until the function that it returns is called.
func (c child) watch(ended func()) (stop func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := rawConn(c.pidfd).Read(func(fd uintptr) bool {
			_, dead, err := waitChild(fd, true, nil)
			return dead || err != nil
		})
		if err == nil {
			ended()
		}
	}()
	return func() {
		_ = c.pidfd.SetReadDeadline(longAgo)
		<-done
		_ = c.pidfd.SetReadDeadline(noDeadline)
	}
}

// mayRefuseCgroup tells errors that a fork fails with when the control group was removed, cannot take processes or is
// beyond an old kernel. Some may be an exec's as well.
func mayRefuseCgroup(err error) bool {
	if sandbox.KindOf(err) != 0 {
		return false // it did not come to the fork
	}
	for _, errno := range []syscall.Errno{unix.ENODEV, unix.EBUSY, unix.EOPNOTSUPP, unix.EACCES, unix.EINVAL, unix.E2BIG} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

// forkExec starts the child in a control group, unless it is nil.
func (s *Supervisor) forkExec(spec *Spec, what sandbox.Program, group *cgroup) (c child, err error) {
	pidfd := -1
	files := make([]uintptr, len(what.Files))
	for i, fd := range what.Files {
		files[i] = uintptr(fd)
	}
	attr := syscall.ProcAttr{Dir: what.Dir, Env: what.Env, Files: files, Sys: &syscall.SysProcAttr{
		Setsid: true, Setctty: what.Terminal >= 0, Ctty: max(what.Terminal, 0), PidFD: &pidfd, Ptrace: spec.limited(),
	}}
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
	restore := func() {}
	switch {
	case !what.KeepMask:
		restore = s.inherited.clearMask()
	case spec.limited():
		if restore, err = unblockTrap(); err != nil {
			return child{}, err
		}
	}
	pid, err := syscall.ForkExec(what.Path, what.Argv, &attr)
	restore()
	if err != nil {
		return child{}, err
	}
	if pidfd < 0 {
		return child{}, disown(pid, errors.New("the kernel has no pidfds; Linux 5.4 or later is needed"))
	}
	if !spec.limited() {
		s.restraint.apply(pid)
	} else if err := spec.applyLimits(pid, s.restraint); err != nil {
		_ = unix.Close(pidfd)
		return child{}, disown(pid, err)
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
