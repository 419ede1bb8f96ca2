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

// list lists all processes. It fails with ESRCH if the PID of the leader may have been reused.
func (w *wrapper) list() ([]procfs.Stat, error) {
	procs, err := procfs.List()
	if err == nil && w.leader.reaped.Load() {
		err = unix.ESRCH
	}
	return procs, err
}

// openProgram opens a pidfd of the program inside the wrapper. It fails with ESRCH if that has
// ended.
func (w *wrapper) openProgram() (fd int, program procfs.Stat, err error) {
	procs, err := w.list()
	if err != nil {
		return -1, program, err
	}
	isChild := map[int]bool{}
	for _, candidate := range procs {
		isChild[candidate.PID] = candidate.PPID == w.leader.pid
	}
	for _, candidate := range procs {
		if isChild[candidate.PPID] && innermostPID(candidate.PID) == programPIDInside {
			fd, err = procfs.OpenPidfd(candidate)
			return fd, candidate, err
		}
	}
	return -1, program, unix.ESRCH
}

// innermostPID returns the PID of a process in its own namespace, or "".
func innermostPID(pid int) string {
	status, _ := procfs.Status(pid, "NSpid")
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
	if err != nil {
		return ignoreEnd(err) // the rest of its group was signalled already
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
	return ignoreEnd(err)
}

// ignoreEnd returns the typed error of a signal, or nil if the process has ended.
func ignoreEnd(err error) error {
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return signalError(err)
}

// resume continues the wrapper processes after a SIGSTOP to the group: nothing else would
// if the program alone is continued or killed, and its end would never be reported.
func (w *wrapper) resume() error {
	procs, err := w.list()
	if err != nil {
		return ignoreEnd(err)
	}
	for _, candidate := range procs {
		if candidate.PPID == w.leader.pid {
			signalVerified(candidate, unix.SIGCONT)
		}
	}
	if err := w.leader.signal(unix.SIGCONT, 0); KindOf(err) != AlreadyExited {
		return err
	}
	return nil
}
