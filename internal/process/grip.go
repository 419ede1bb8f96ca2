package process

import (
	"errors"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxGrip bounds the pidfds that are open at once to kill one process's descendants: those who are many are killed in
// turns.
const maxGrip = 1024

// grip holds processes that are to be killed, by pidfds, so that each signal meets the one that was seen. It is for
// one goroutine.
type grip struct {
	held    map[identity]int
	outside bool // one of them was in another process group than the leader's
}

// take stops those that are not held yet, so that they fork no more, and tells how many there were. It fails with
// what forbids it; those who are gone meanwhile do not count as a failure.
func (g *grip) take(members []procStat, group int) (fresh int, err error) {
	if g.held == nil {
		g.held = map[identity]int{}
	}
	for _, p := range members {
		if _, held := g.held[p.identity()]; held || len(g.held) >= maxGrip {
			continue
		}
		fd, openErr := openExactly(p)
		if openErr == nil {
			openErr = unix.PidfdSendSignal(fd, unix.SIGSTOP, nil, 0)
			if openErr != nil {
				_ = unix.Close(fd)
			}
		}
		switch {
		case openErr == nil:
			g.held[p.identity()] = fd
			g.outside = g.outside || p.group != group
			fresh++
		case errors.Is(openErr, unix.ESRCH):
			fresh++ // it may have left a child
		default:
			err = openErr
		}
	}
	return fresh, err
}

// openExactly opens the process that was seen, and no other that has its number by now.
func openExactly(p procStat) (fd int, err error) {
	fd, err = unix.PidfdOpen(p.pid, 0)
	if err != nil {
		if errors.Is(err, unix.EINVAL) {
			err = unix.ESRCH // nobody's but a thread's
		}
		return -1, err
	}
	now, err := readStat(p.pid)
	if err == nil && now.start != p.start {
		err = unix.ESRCH
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// kill kills those who are held.
func (g *grip) kill() {
	for _, fd := range g.held {
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	}
}

// release waits until those who were killed are dead, or for the time given, and lets go of them.
func (g *grip) release(patience time.Duration) {
	deadline := time.Now().Add(patience)
	for id, fd := range g.held {
		awaitDeath(fd, time.Until(deadline))
		_ = unix.Close(fd)
		delete(g.held, id)
	}
}

// awaitDeath waits until a pidfd's process is dead, a zombie at the most.
func awaitDeath(fd int, patience time.Duration) {
	asked := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	_, _ = unix.Poll(asked, max(0, int(patience.Milliseconds())))
}

// signalExactly signals the process that was seen, if it is still there, and tells whether the first signal reached it.
func signalExactly(p procStat, signals ...syscall.Signal) bool {
	fd, err := openExactly(p)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	reached := false
	for i, sig := range signals {
		// The first may end it before the next comes.
		if err := unix.PidfdSendSignal(fd, sig, nil, 0); i == 0 {
			reached = err == nil
		}
	}
	return reached
}
