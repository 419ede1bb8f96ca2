package process

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// Target selects the receivers of a signal.
type Target uint8

// The targets. The zero value is the group.
const (
	TargetGroup      Target = iota // the process group that the process was started in
	TargetProcess                  // the process alone
	TargetForeground               // the foreground process group of its terminal
)

// Signal sends a signal, 1 to 64. It does not affect the cause of an exit. The group can be
// signalled until the process is closed, also after its leader exited. Kinds: InvalidArgument,
// AlreadyExited, NotATerminal, PermissionDenied.
func (p *Process) Signal(sig syscall.Signal, target Target) error {
	if sig < 1 || sig > 64 {
		return &Error{Kind: InvalidArgument, Field: "signal", Err: fmt.Errorf("%d is not between 1 and 64", int(sig)), operation: "signal process"}
	}
	switch target {
	case TargetGroup:
		if err := p.signalGroup(sig); err != nil || p.wrapper == nil {
			return err
		}
		if err := p.wrapper.signalProgramGroup(sig); err != nil {
			return err
		}
	case TargetProcess:
		return p.signalLeader(sig)
	case TargetForeground: // as Ctrl-C does
		group, err := p.terminal.foreground()
		switch {
		case err != nil:
		case group == p.leader.pid:
			err = p.signalGroup(sig)
		default:
			err = p.terminal.signalJob(group, sig)
		}
		if err != nil {
			return err
		}
	default:
		return &Error{Kind: InvalidArgument, Field: "target", Err: fmt.Errorf("%d is no target", target), operation: "signal process"}
	}
	if sig == unix.SIGSTOP && p.wrapper != nil {
		return p.wrapper.resume()
	}
	return nil
}

func (p *Process) signalLeader(sig syscall.Signal) error {
	if _, exited := p.Exit(); exited {
		return errAlreadyExited()
	}
	if p.wrapper != nil {
		return p.wrapper.signalProgram(sig)
	}
	return p.leader.signal(sig, 0)
}

func (p *Process) signalGroup(sig syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state == StateClosed {
		return errAlreadyExited() // remaining descendants no longer belong to it
	}
	return p.leader.signalGroup(sig)
}

func signalError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.ESRCH):
		return errAlreadyExited()
	case errors.Is(err, unix.EPERM):
		return &Error{Kind: PermissionDenied, Err: err, operation: "signal process"}
	}
	return &Error{Kind: Internal, Err: err, operation: "signal process"}
}

func errAlreadyExited() error {
	return newError(AlreadyExited, "signal process", "it has exited, and no process of its group is left")
}
