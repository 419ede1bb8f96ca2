package process

import (
	"errors"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/procfs"
)

// Some sandboxes (bubblewrap) fork a wrapper that ignores signals and waits for the program. Its
// child is the init of the PID namespace, and the first child of that is the program. Signals to
// the leader or its group that are meant for the program have to find it.

// programPIDInside is the PID of the program in its namespace.
const programPIDInside = "2"

// wrapper is a leader that is not the program. Nil: the leader is the program.
type wrapper struct {
	leader *leader
	init   procfs.Stat // of the PID namespace; zero if it was not found
}

func newWrapper(l *leader) *wrapper {
	init, _ := findInit(l.pid)
	return &wrapper{leader: l, init: init}
}

// openProgram opens a pidfd of the program inside the wrapper. It fails with ESRCH if that has
// ended.
func (w *wrapper) openProgram() (fd int, program procfs.Stat, err error) {
	procs, err := procfs.List()
	if err != nil {
		return -1, program, err
	}
	isChild := map[int]bool{}
	for _, candidate := range procs {
		isChild[candidate.PID] = candidate.PPID == w.leader.pid
	}
	for _, candidate := range procs {
		if !isChild[candidate.PPID] || innermostPID(candidate.PID) != programPIDInside {
			continue
		}
		if fd, err = procfs.OpenPidfd(candidate); err != nil {
			return -1, candidate, err
		}
		// While the leader is not reaped its PID cannot have been reused.
		if w.leader.reaped.Load() {
			_ = unix.Close(fd)
			return -1, candidate, unix.ESRCH
		}
		return fd, candidate, nil
	}
	return -1, program, unix.ESRCH
}

// innermostPID returns the PID of a process in its own namespace, or "".
func innermostPID(pid int) string {
	status, _ := procfs.Status(pid)
	pids := status["NSpid"]
	return pids[strings.LastIndexByte(pids, '\t')+1:]
}

// signalProgram signals the program inside the wrapper.
func (w *wrapper) signalProgram(sig syscall.Signal) error {
	fd, _, err := w.openProgram()
	if err != nil {
		return signalError(err)
	}
	defer unix.Close(fd)
	return signalError(unix.PidfdSendSignal(fd, sig, nil, 0))
}

// signalProgramGroup signals the group of the program if that is not the group that it was started
// in. A leader cannot leave its group, but a program in a wrapper can, and shells with job control
// do.
func (w *wrapper) signalProgramGroup(sig syscall.Signal) error {
	fd, program, err := w.openProgram()
	switch {
	case errors.Is(err, unix.ESRCH):
		return nil // the rest of its group was signalled already
	case err != nil:
		return signalError(err)
	}
	defer unix.Close(fd)
	switch {
	case program.Group == w.leader.pid:
		return nil
	case program.Group == program.PID && !w.leader.groupByPID:
		err = unix.PidfdSendSignal(fd, sig, nil, unix.PIDFD_SIGNAL_PROCESS_GROUP)
	default:
		err = unix.PidfdSendSignal(fd, sig, nil, 0)
	}
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return signalError(err)
}

// resume continues the wrapper processes after a SIGSTOP to the group: nothing else would
// if the program alone is continued or killed, and its end would never be reported.
func (w *wrapper) resume() error {
	procs, err := procfs.List()
	if err != nil {
		return signalError(err)
	}
	for _, candidate := range procs {
		if candidate.PPID != w.leader.pid {
			continue
		}
		fd, err := procfs.OpenPidfd(candidate)
		if err != nil {
			continue // it has ended
		}
		if !w.leader.reaped.Load() { // the PID of the parent was not reused
			_ = unix.PidfdSendSignal(fd, unix.SIGCONT, nil, 0)
		}
		_ = unix.Close(fd)
	}
	if err := w.leader.signal(unix.SIGCONT, 0); KindOf(err) != AlreadyExited {
		return err
	}
	return nil
}
