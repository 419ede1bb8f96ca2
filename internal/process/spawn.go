package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/cgroup"
	"github.com/execwire/execwire/internal/sandbox"
)

// child is a process that was just started.
type child struct {
	pid    int // 0: there is none
	pidfd  *os.File
	cgroup *cgroup.Group // nil: none
	// sandbox has to be released when no process is left. Nil: not confined.
	sandbox *sandbox.Usage
}

// textBusyRetries is how often an exec that fails with ETXTBSY is repeated. Usually another child,
// forked while the file was being written, holds a copy of the writer's descriptor until its own
// exec. The delays double from 1 ms.
const textBusyRetries = 5

// spawn forks and executes. If it fails there can still be a child, from a sandbox that did not
// execute the program; it has to be killed with its descendants.
func (s *Supervisor) spawn(ctx context.Context, spec *Spec, program string, cio *childIO) (child, error) {
	prog := s.program(spec, program, cio)
	group := s.config.Cgroups.Get()
	for {
		s.confinedPeers.noteNetworkAccess(spec, group)
		c, err := s.startProgram(ctx, spec, prog, group)
		switch {
		case err == nil:
			return c, nil
		case c.pid != 0:
			return c, spec.classifySandboxError(program, err)
		case group != nil && isCgroupForkError(err):
			group.Discard()
			group = nil // if this was not the cause the next try fails too
		default:
			if group != nil {
				group.Release()
			}
			return child{}, asUser(spec.User, func() error {
				if spec.Sandbox != nil {
					return spec.classifySandboxError(program, err)
				}
				return spec.classifyExecError(program, err)
			})
		}
	}
}

// program returns the program to execute without a sandbox.
func (s *Supervisor) program(spec *Spec, path string, cio *childIO) sandbox.Program {
	p := sandbox.Program{
		Path: path, Argv: spec.argv(), Env: spec.Env, Dir: spec.Cwd, Files: cio.childFDs[:], Terminal: -1,
		User:   credential(spec.User),
		Limits: spec.limits(s.config.UserProcesses), Nice: spec.Nice, OOMScore: s.oomScore, ResetSignals: s.ignoredSignals,
	}
	if cio.terminal != nil {
		p.Terminal = 0
	}
	if spec.Sandbox != nil {
		p.Path = spec.absolutePath(path)
	}
	return p
}

// startProgram starts a program, confined if spec says so, in a control group unless that is nil.
// The end of ctx aborts the start only if it is confined.
func (s *Supervisor) startProgram(ctx context.Context, spec *Spec, prog sandbox.Program, group *cgroup.Group) (c child, err error) {
	if spec.Sandbox == nil {
		return forkExec(spec, prog, group)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.ctx, func() { cancel(errClosing()) })()
	unwatch := func() {}
	c.sandbox, err = spec.Sandbox.Start(ctx, prog, func(wrapped sandbox.Program) (err error) {
		if c, err = forkExec(spec, wrapped, group); err == nil && spec.Sandbox.Report().ExitByCode {
			unwatch = c.watchEnd(func() { cancel(errWrapperEnded()) })
		}
		return err
	})
	unwatch()
	switch cause := context.Cause(ctx); {
	case cause == nil || !errors.Is(err, cause): // it failed before
	case KindOf(cause) != 0:
		err = cause
	default:
		err = fmt.Errorf("failed to start process: %w", cause)
	}
	return c, err
}

// errWrapperEnded is the error of a start whose wrapper was killed while another process waits for
// it for ever.
func errWrapperEnded() error {
	return startError(SandboxNotStarted, "", errors.New("bubblewrap was ended before the program began"))
}

// watchEnd calls ended when the child ends, until stop is called.
func (c child) watchEnd(ended func()) (stop func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if _, err := waitEnd(rawConn(c.pidfd), nil); err == nil {
			ended()
		}
	}()
	return func() {
		_ = c.pidfd.SetReadDeadline(pastDeadline)
		<-done
		_ = c.pidfd.SetReadDeadline(noDeadline)
	}
}

// isCgroupForkError reports whether a fork may have failed because the control group was removed,
// cannot take processes, or is not supported by an old kernel. Some of these may also be errors of
// exec.
func isCgroupForkError(err error) bool {
	if sandbox.KindOf(err) != 0 || KindOf(err) != 0 {
		return false // it failed before the exec
	}
	return isAnyOf(err, unix.ENODEV, unix.EBUSY, unix.EOPNOTSUPP, unix.EACCES, unix.EINVAL, unix.E2BIG)
}

// forkExec starts the child in a control group, unless that is nil.
func forkExec(spec *Spec, prog sandbox.Program, group *cgroup.Group) (c child, err error) {
	pidfd := -1
	attr := syscall.SysProcAttr{Setsid: true, PidFD: &pidfd}
	if group != nil {
		fd, err := group.Open()
		if err != nil {
			return child{}, unix.ENODEV // it was removed
		}
		defer unix.Close(fd)
		attr.UseCgroupFD, attr.CgroupFD = true, fd
	}
	var oomScoreDenied bool
	prog.OOMScoreDenied = &oomScoreDenied
	pid, err := prog.ForkExec(attr)
	var limit *sandbox.LimitError
	var user *sandbox.CredentialError
	switch {
	case errors.As(err, &user):
		return child{}, userUnavailable(*spec.User, user.Err)
	case errors.As(err, &limit):
		return child{}, spec.limitError(limit)
	case err != nil:
		return child{}, err
	case pidfd < 0:
		return child{}, killChild(pid, errors.New("the kernel has no pidfds; Linux 5.4 or later is needed"))
	}
	if oomScoreDenied {
		setOOMScoreLate(pid, pidfd, prog.OOMScore)
	}
	file, err := pollable(pidfd, "pidfd")
	if err != nil {
		return child{}, killChild(pid, err)
	}
	return child{pid: pid, pidfd: file, cgroup: group}, nil
}

// killChild kills and reaps a child that cannot be used.
func killChild(pid int, err error) error {
	_ = unix.Kill(-pid, unix.SIGKILL)
	_ = waitID(unix.P_PID, pid, nil, unix.WEXITED, nil)
	return err
}
