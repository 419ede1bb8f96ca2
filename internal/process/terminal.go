package process

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// terminal is the terminal of a process, by its master.
type terminal struct{ master *os.File }

// control calls f with the master, or fails if that is closed.
func (t *terminal) control(f func(fd int) error) error {
	conn, err := t.master.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := conn.Control(func(fd uintptr) { inner = f(int(fd)) }); err != nil {
		return err
	}
	return inner
}

// resize sets the size; the kernel sends SIGWINCH to the foreground process group.
func (t *terminal) resize(size WindowSize) error {
	return t.control(func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: size.Rows, Col: size.Cols})
	})
}

// foreground returns the foreground process group. It fails for a nil terminal.
func (t *terminal) foreground() (group int, err error) {
	if t == nil {
		return 0, newError(NotATerminal, "signal process", "the process was started without a terminal and has no foreground")
	}
	err = t.control(func(fd int) (err error) {
		group, err = unix.IoctlGetInt(fd, unix.TIOCGPGRP)
		return err
	})
	if err != nil || group <= 0 {
		return 0, errAlreadyExited()
	}
	return group, nil
}

// signalJob signals a foreground group that a shell created. For the signals of keys the kernel
// does it (TIOCSIG). For others there is only the ID: it was that of the foreground a moment ago,
// and PIDs are not reused before they wrap around.
func (t *terminal) signalJob(group int, sig syscall.Signal) error {
	err := t.control(func(fd int) error { return unix.IoctlSetInt(fd, unix.TIOCSIG, int(sig)) })
	var errno syscall.Errno
	switch {
	case errors.Is(err, unix.EINVAL):
		return signalError(unix.Kill(-group, sig))
	case err != nil && !errors.As(err, &errno):
		return errAlreadyExited()
	}
	return signalError(err)
}

// Resize changes the size of the terminal; the kernel sends SIGWINCH to its foreground process
// group. Zero fields have the default. Kinds: NotATerminal, AlreadyExited.
func (p *Process) Resize(size WindowSize) error {
	if p.terminal == nil {
		return newError(NotATerminal, "resize terminal", "the process was started without a terminal")
	}
	size = size.withDefaults()
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.terminal.resize(size); err != nil || p.state >= StateExited {
		return newError(AlreadyExited, "resize terminal", "the process has exited")
	}
	p.windowSize = size
	return nil
}

// WindowSize returns the size of the terminal as it was last set, and zero without a terminal.
func (p *Process) WindowSize() WindowSize {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.windowSize
}
