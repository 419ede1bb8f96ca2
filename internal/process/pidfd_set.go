package process

import (
	"errors"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/procfs"
)

// maxPidfds bounds the open pidfds of one kill job. Larger trees are killed in batches.
const maxPidfds = 1024

// pidfdSet holds pidfds of processes to kill, so that each signal reaches the process that the scan
// saw. It is used by one goroutine.
type pidfdSet struct {
	fds          map[procfs.ID]int
	outsideGroup bool // one was not in the process group of the leader
}

// stopNew stops the processes that are not in the set yet, so that they cannot fork, adds them, and
// returns how many there were. Processes that have ended are no error.
func (s *pidfdSet) stopNew(members []procfs.Stat, group int) (stopped int, err error) {
	if s.fds == nil {
		s.fds = map[procfs.ID]int{}
	}
	for _, p := range members {
		if _, known := s.fds[p.ID()]; known || len(s.fds) >= maxPidfds {
			continue
		}
		fd, openErr := procfs.OpenPidfd(p)
		if openErr == nil {
			openErr = unix.PidfdSendSignal(fd, unix.SIGSTOP, nil, 0)
			if openErr != nil {
				_ = unix.Close(fd)
			}
		}
		switch {
		case openErr == nil:
			s.fds[p.ID()] = fd
			s.outsideGroup = s.outsideGroup || p.Group != group
			stopped++
		case errors.Is(openErr, unix.ESRCH):
			stopped++ // it may have left a child
		default:
			err = openErr
		}
	}
	return stopped, err
}

// kill sends SIGKILL to all processes of the set.
func (s *pidfdSet) kill() {
	for _, fd := range s.fds {
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	}
}

// removeDead waits until the killed processes are dead, or for the deadline, and removes the dead ones.
func (s *pidfdSet) removeDead(deadline time.Time) {
	for id, fd := range s.fds {
		if waitDead(fd, time.Until(deadline)) {
			_ = unix.Close(fd)
			delete(s.fds, id)
		}
	}
}

// close empties the set.
func (s *pidfdSet) close() {
	for _, fd := range s.fds {
		_ = unix.Close(fd)
	}
	clear(s.fds)
}

// waitDead waits until the process of a pidfd is dead or a zombie, or for the timeout, and reports whether
// it is.
func waitDead(fd int, timeout time.Duration) bool {
	pollFDs := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, _ := unix.Poll(pollFDs, max(0, int(timeout.Milliseconds())))
	return n > 0
}

// signalVerified sends signals to the process that the scan saw, and reports whether the first one
// reached it.
func signalVerified(p procfs.Stat, signals ...syscall.Signal) bool {
	fd, err := procfs.OpenPidfd(p)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	reached := false
	for i, sig := range signals {
		// The first signal may end the process before the second is sent.
		if err := unix.PidfdSendSignal(fd, sig, nil, 0); i == 0 {
			reached = err == nil
		}
	}
	return reached
}
