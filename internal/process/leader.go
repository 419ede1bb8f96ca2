package process

import (
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// leader is the child of this program that a Process was started as. Its PID is also the ID of a
// process group and a session.
type leader struct {
	pid        int
	file       *os.File        // the pidfd
	pidfd      syscall.RawConn // of file
	groupByPID bool            // signal the group by its ID, see the package comment
	reaped     atomic.Bool     // set with Process.mu held, before the PID is freed
}

func newLeader(c child, groupByPID bool) *leader {
	return &leader{pid: c.pid, file: c.pidfd, pidfd: rawConn(c.pidfd), groupByPID: groupByPID}
}

// waitEnd waits for the end of a child, with its pidfd in the poller, and leaves it a zombie. The
// info has no PID if other code has reaped it.
func waitEnd(pidfd syscall.RawConn, usage *unix.Rusage) (info childInfo, err error) {
	var waitErr error
	err = pidfd.Read(func(fd uintptr) (done bool) {
		info, done, waitErr = waitChild(fd, true, usage)
		return done || waitErr != nil
	})
	if err != nil || waitErr != nil {
		info = childInfo{}
	}
	return info, err
}

// isDead reports whether the leader has ended, whether reaped or not.
func (l *leader) isDead() bool {
	dead := true
	_ = l.pidfd.Control(func(fd uintptr) {
		var err error
		_, dead, err = waitChild(fd, true, nil)
		dead = dead || err != nil
	})
	return dead
}

// waitDead waits until the leader is dead, reaped or not, or for the timeout.
func (l *leader) waitDead(timeout time.Duration) {
	_ = l.pidfd.Control(func(fd uintptr) { waitDead(int(fd), timeout) })
}

// reap frees the PID of the leader, which is dead.
func (l *leader) reap() {
	_ = l.pidfd.Control(func(fd uintptr) { _, _, _ = waitChild(fd, false, nil) })
}

// isPIDInUse reports whether the PID is in use as the ID of a process, a group or a session.
func (l *leader) isPIDInUse() bool {
	inUse := true
	_ = l.pidfd.Control(func(fd uintptr) { inUse = isPIDInUse(fd, l.pid) })
	return inUse
}

// signal sends a signal through the pidfd.
func (l *leader) signal(sig syscall.Signal, flags int) error {
	var sent error
	err := l.pidfd.Control(func(fd uintptr) { sent = unix.PidfdSendSignal(int(fd), sig, nil, flags) })
	if err != nil {
		return errAlreadyExited() // the descriptor was closed with the process
	}
	return signalError(sent)
}

// signalGroup signals the group through the pidfd, or by its ID, which the zombie of the leader
// reserves until it is reaped. Called with Process.mu held.
func (l *leader) signalGroup(sig syscall.Signal) error {
	switch {
	case !l.groupByPID:
		return l.signal(sig, unix.PIDFD_SIGNAL_PROCESS_GROUP)
	case l.reaped.Load():
		return errAlreadyExited()
	}
	return signalError(unix.Kill(-l.pid, sig))
}

// close closes the pidfd. It may be called again.
func (l *leader) close() { _ = l.file.Close() }
