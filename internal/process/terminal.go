package process

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// Resize changes the size of the terminal, and the kernel sends SIGWINCH to its foreground process group. Zeroes mean
// the usual size. Kinds: NotATerminal, AlreadyExited.
func (p *Process) Resize(size WindowSize) error {
	if p.terminal == nil {
		return refuse(NotATerminal, "resize terminal", "the process was started without a terminal")
	}
	size = size.withDefaults()
	p.mu.Lock()
	defer p.mu.Unlock()
	err := p.controlTerminal(func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: size.Rows, Col: size.Cols})
	})
	if err != nil || p.state >= StateExited {
		return refuse(AlreadyExited, "resize terminal", "the process has exited")
	}
	p.size = size
	return nil
}

// WindowSize returns the terminal's size as it was last set, and the zero value for a process without one.
func (p *Process) WindowSize() WindowSize {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.size
}

// signalForeground signals the terminal's foreground process group: the job that Ctrl-C would reach.
func (p *Process) signalForeground(sig syscall.Signal) error {
	if p.terminal == nil {
		return refuse(NotATerminal, "signal process", "the process was started without a terminal and has no foreground")
	}
	group := 0
	err := p.controlTerminal(func(fd int) (err error) {
		group, err = unix.IoctlGetInt(fd, unix.TIOCGPGRP)
		return err
	})
	switch {
	case err != nil || group <= 0:
		return errAlreadyExited()
	case group == p.pid:
		return p.signalGroup(sig)
	}
	return p.signalJob(group, sig)
}

// signalJob signals a group that a shell made and put into the foreground. The kernel does it for the keys' signals,
// by identity. For the others there is only the number: it was the foreground's a moment ago, and numbers are not
// reused before all the others were.
func (p *Process) signalJob(group int, sig syscall.Signal) error {
	err := p.controlTerminal(func(fd int) error { return unix.IoctlSetInt(fd, unix.TIOCSIG, int(sig)) })
	var errno syscall.Errno
	switch {
	case errors.Is(err, unix.EINVAL):
		return signalError(unix.Kill(-group, sig))
	case err != nil && !errors.As(err, &errno):
		return errAlreadyExited()
	}
	return signalError(err)
}

// controlTerminal calls f with the master, and fails without calling it when that was closed.
func (p *Process) controlTerminal(f func(fd int) error) error {
	conn, err := p.terminal.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := conn.Control(func(fd uintptr) { inner = f(int(fd)) }); err != nil {
		return err
	}
	return inner
}
