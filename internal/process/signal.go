package process

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// Target says who gets a signal.
type Target uint8

// The targets. The zero value is the group.
const (
	TargetGroup      Target = iota // the process group that the process was started in
	TargetProcess                  // the process alone
	TargetForeground               // the foreground process group of its terminal
)

// Signal sends a signal, 1 to 64. It does not change the cause of an exit. The group can be signalled until the
// process is closed, even after its leader exited. Kinds: InvalidArgument, AlreadyExited, NotATerminal,
// PermissionDenied.
func (p *Process) Signal(sig syscall.Signal, target Target) error {
	if sig < 1 || sig > 64 {
		return &Error{Kind: InvalidArgument, Field: "signal", Err: fmt.Errorf("%d is not between 1 and 64", int(sig)), verb: "signal process"}
	}
	switch target {
	case TargetGroup:
		if err := p.signalGroup(sig); err != nil || !p.isStoodFor() {
			return err
		}
		if err := p.signalProgramsGroup(sig); err != nil {
			return err
		}
	case TargetProcess:
		return p.signalLeader(sig)
	case TargetForeground:
		if err := p.signalForeground(sig); err != nil {
			return err
		}
	default:
		return &Error{Kind: InvalidArgument, Field: "target", Err: fmt.Errorf("%d is no target", target), verb: "signal process"}
	}
	if sig == unix.SIGSTOP && p.isStoodFor() {
		return p.continueStandIns()
	}
	return nil
}

func (p *Process) signalLeader(sig syscall.Signal) error {
	if _, exited := p.Exit(); exited {
		return errAlreadyExited()
	}
	if p.isStoodFor() {
		return p.signalProgram(sig)
	}
	return p.sendPidfd(sig, 0)
}

func (p *Process) signalGroup(sig syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state == StateClosed {
		return errAlreadyExited() // those who were left alone are not its any more
	}
	return p.signalGroupLocked(sig)
}

// signalGroupLocked signals the group through the pidfd, or by its number, which the leader's zombie reserves until it
// is reaped. Called with mu held.
func (p *Process) signalGroupLocked(sig syscall.Signal) error {
	switch {
	case !p.supervisor.groupsByNumber:
		return p.sendPidfd(sig, unix.PIDFD_SIGNAL_PROCESS_GROUP)
	case p.reaped:
		return errAlreadyExited()
	}
	return signalError(unix.Kill(-p.pid, sig))
}

func (p *Process) sendPidfd(sig syscall.Signal, flags int) error {
	var sent error
	err := p.pidfd.Control(func(fd uintptr) { sent = unix.PidfdSendSignal(int(fd), sig, nil, flags) })
	if err != nil {
		return errAlreadyExited() // the descriptor was closed with the process
	}
	return signalError(sent)
}

func signalError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.ESRCH):
		return errAlreadyExited()
	case errors.Is(err, unix.EPERM):
		return &Error{Kind: PermissionDenied, Err: err, verb: "signal process"}
	}
	return &Error{Kind: Internal, Err: err, verb: "signal process"}
}

func errAlreadyExited() error {
	return refuse(AlreadyExited, "signal process", "it has exited and left nobody to signal")
}
