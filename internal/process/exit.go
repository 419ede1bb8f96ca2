package process

import (
	"errors"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Cause is why a process ended.
type Cause uint8

// The causes. The first one that occurs counts.
const (
	CauseExited          Cause = iota + 1 // by itself, or by a signal that was not sent by Terminate or a timeout
	CauseTerminated                       // Terminate
	CauseTimeout                          // Spec.Timeout
	CauseNoOutput                         // Spec.NoOutputTimeout
	CauseLimit                            // one of Spec.ResourceLimits
	CauseServerShutdown                   // Supervisor.Close
	CauseLost                             // the exit status could not be read
	CauseServerRestarted                  // it ran when the server before this one ended; see Supervisor.Recover
)

var causeNames = [...]string{
	CauseExited: "exited", CauseTerminated: "terminated", CauseTimeout: "timeout", CauseNoOutput: "no-output", CauseLimit: "limit",
	CauseServerShutdown: "server-shutdown", CauseLost: "lost",
	CauseServerRestarted: "server-restarted",
}

// String returns the name of the cause.
func (c Cause) String() string {
	if int(c) >= len(causeNames) || c == 0 {
		return "unknown"
	}
	return causeNames[c]
}

// HasStatus reports whether the exit record of a process that ended by the cause has a code or a
// signal.
func (c Cause) HasStatus() bool { return c != CauseLost && c != CauseServerRestarted }

// CauseOf returns the cause with a name.
func CauseOf(name string) (Cause, bool) {
	for c := CauseExited; int(c) < len(causeNames); c++ {
		if causeNames[c] == name {
			return c, true
		}
	}
	return 0, false
}

// ExitRecord describes the end of a process.
type ExitRecord struct {
	Code        int            // valid if Signal is 0
	Signal      syscall.Signal // 0: it exited with Code
	Cause       Cause
	UserTime    time.Duration // of the process and the descendants it waited for; so are SystemTime and MaxRSSBytes
	SystemTime  time.Duration
	MaxRSSBytes int64 // the maximum; 0: less than that of this program, which the kernel includes
	WallTime    time.Duration
	ExitedAt    time.Time // when it was waited for
	// SandboxDenied reports that a confined process probably failed because of its sandbox: it did
	// not succeed and its retained output says so, or it was killed by SIGSYS. It is valid once the
	// log has the exited event.
	SandboxDenied bool
}

// childInfo is the part of siginfo_t that waitid(2) sets. The union in it is aligned like a
// pointer.
type childInfo struct {
	signo, errno, code int32
	union              struct {
		_           [0]uintptr
		pid         int32
		uid, status int32
	}
}

const cldExited = 1 // CLD_EXITED; other ends have a signal

// waitChild asks for the end of a child without blocking. With keepZombie it is not reaped.
func waitChild(pidfd uintptr, keepZombie bool, usage *unix.Rusage) (info childInfo, dead bool, err error) {
	options := unix.WEXITED | unix.WNOHANG
	if keepZombie {
		options |= unix.WNOWAIT
	}
	var raw unix.Siginfo
	err = waitID(unix.P_PIDFD, int(pidfd), &raw, options, usage)
	info = *(*childInfo)(unsafe.Pointer(&raw))
	return info, err == nil && info.union.pid != 0, err
}

// waitID is waitid(2), repeated when a signal interrupts it.
func waitID(kind, id int, info *unix.Siginfo, options int, usage *unix.Rusage) error {
	for {
		if err := unix.Waitid(kind, id, info, options, usage); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// record returns the exit record of a child that ended.
func (info childInfo) record(startedAt time.Time, usage *unix.Rusage) ExitRecord {
	now := time.Now()
	rec := ExitRecord{
		UserTime:    time.Duration(usage.Utime.Nano()),
		SystemTime:  time.Duration(usage.Stime.Nano()),
		MaxRSSBytes: childMaxRSS(usage.Maxrss) << 10,
		WallTime:    now.Sub(startedAt),
		ExitedAt:    now,
	}
	if info.code == cldExited {
		rec.Code = int(info.union.status)
	} else {
		rec.Signal = syscall.Signal(info.union.status)
	}
	return rec
}

// childMaxRSS returns the largest resident set of a child in KiB, or 0 if it is not larger than
// that of this program. The kernel starts counting with the memory of the forking process, which
// the child shares until its exec.
func childMaxRSS(maxrss int64) int64 {
	var own unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &own); err == nil && maxrss <= own.Maxrss {
		return 0
	}
	return maxrss
}
