package process

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Of some sandboxes the process that was forked is not the program, but waits for it, heeding no signal: bubblewrap. Its
// child is the init of the namespace, and the first child of that is the program. Whoever means the program by the
// leader or by its group has to find it.

// firstInside is the number that the program has in its namespace.
const firstInside = "2"

// isStoodFor tells whether the leader is not the program itself.
func (p *Process) isStoodFor() bool { return p.sandbox != nil && p.sandbox.ExitByCode }

// openProgram opens the program that the leader stands for. It fails with ESRCH if that has ended.
func (p *Process) openProgram() (fd int, program procStat, err error) {
	procs, err := readProcs()
	if err != nil {
		return -1, program, err
	}
	inits := map[int]bool{}
	for _, found := range procs {
		inits[found.pid] = found.ppid == p.pid
	}
	for _, found := range procs {
		if !inits[found.ppid] || innerNumber(found.pid) != firstInside {
			continue
		}
		if fd, err = openExactly(found); err != nil {
			return -1, found, err
		}
		// If the leader is not reaped by now, its number was its own all the time.
		if p.mu.Lock(); p.reaped {
			err = unix.ESRCH
		}
		p.mu.Unlock()
		if err != nil {
			_ = unix.Close(fd)
			return -1, found, err
		}
		return fd, found, nil
	}
	return -1, program, unix.ESRCH
}

// innerNumber is what a process is called in its own namespace, or "".
func innerNumber(pid int) string {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return ""
	}
	_, rest, _ := bytes.Cut(status, []byte("\nNSpid:"))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	fields := bytes.Fields(line)
	if len(fields) == 0 {
		return ""
	}
	return string(fields[len(fields)-1])
}

// signalProgram signals the program that the leader stands for.
func (p *Process) signalProgram(sig syscall.Signal) error {
	fd, _, err := p.openProgram()
	if err != nil {
		return signalError(err)
	}
	defer unix.Close(fd)
	return signalError(unix.PidfdSendSignal(fd, sig, nil, 0))
}

// signalProgramsGroup signals the program's group, if the program has left the one it was started in. A leader cannot do
// that; the one who it stands for can, and shells with jobs do.
func (p *Process) signalProgramsGroup(sig syscall.Signal) error {
	fd, program, err := p.openProgram()
	switch {
	case errors.Is(err, unix.ESRCH):
		return nil // who is left of its group got the signal
	case err != nil:
		return signalError(err)
	}
	defer unix.Close(fd)
	switch {
	case program.group == p.pid:
		return nil
	case program.group == program.pid && !p.supervisor.groupsByNumber:
		err = unix.PidfdSendSignal(fd, sig, nil, unix.PIDFD_SIGNAL_PROCESS_GROUP)
	default:
		err = unix.PidfdSendSignal(fd, sig, nil, 0)
	}
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return signalError(err)
}

// continueStandIns lets those go on who stand for the program, and were stopped with its group: nobody else would, if the
// program alone is continued or killed, and they would never tell of its end.
func (p *Process) continueStandIns() error {
	procs, err := readProcs()
	if err != nil {
		return signalError(err)
	}
	for _, found := range procs {
		if found.ppid != p.pid {
			continue
		}
		fd, err := openExactly(found)
		if err != nil {
			continue // it has ended
		}
		if p.mu.Lock(); !p.reaped { // then the number of its parent was the leader's all the time
			_ = unix.PidfdSendSignal(fd, unix.SIGCONT, nil, 0)
		}
		p.mu.Unlock()
		_ = unix.Close(fd)
	}
	if err := p.sendPidfd(unix.SIGCONT, 0); KindOf(err) != AlreadyExited {
		return err
	}
	return nil
}
