package process

import (
	"errors"
	"fmt"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Cause says why a process ended.
type Cause uint8

// The causes. The first one that applies counts.
const (
	CauseExited         Cause = iota + 1 // by itself, or by a signal that nobody sent to end it for us
	CauseTerminated                      // Terminate
	CauseTimeout                         // Spec.Timeout
	CauseNoOutput                        // Spec.NoOutputTimeout
	CauseLimit                           // one of Spec.ResourceLimits
	CauseServerShutdown                  // Supervisor.Close
	CauseLost                            // it is gone, and how it ended could not be learned
)

func (c Cause) String() string {
	names := [...]string{"none", "exited", "terminated", "timeout", "no output", "limit", "server shutdown", "lost"}
	if int(c) < len(names) {
		return names[c]
	}
	return fmt.Sprintf("cause(%d)", uint8(c))
}

// ExitRecord is how a process ended.
type ExitRecord struct {
	Code        int            // meaningful if Signal is 0
	Signal      syscall.Signal // 0: it exited with Code
	Cause       Cause
	UserTime    time.Duration // of the process and of those descendants it waited for; so are the next two
	SystemTime  time.Duration
	MaxRSSBytes int64 // the largest of them; 0: smaller than this process, which the kernel counts in
	WallTime    time.Duration
	ExitedAt    time.Time // when it was reaped
	// SandboxDenied says that a confined process seems to have failed because of its sandbox: it did not succeed, and
	// what is retained of its output says so, or it was ended by SIGSYS. It is known when the log has its exited event.
	SandboxDenied bool
}

// childInfo is the part of siginfo_t that waitid(2) fills. The union in it is aligned like a pointer.
type childInfo struct {
	signo, errno, code int32
	union              struct {
		_           [0]uintptr
		pid         int32
		uid, status int32
	}
}

const (
	cldExited  = 1 // CLD_EXITED; the other ends carry a signal
	cldTrapped = 4 // CLD_TRAPPED: stopped for the one who traces it
)

// waitChild asks for the end of a child. With hold it stays a zombie.
func waitChild(pidfd uintptr, hold bool, usage *unix.Rusage) (info childInfo, dead bool, err error) {
	options := unix.WEXITED | unix.WNOHANG
	if hold {
		options |= unix.WNOWAIT
	}
	var raw unix.Siginfo
	for {
		err = unix.Waitid(unix.P_PIDFD, int(pidfd), &raw, options, usage)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	info = *(*childInfo)(unsafe.Pointer(&raw))
	return info, err == nil && info.union.pid != 0, err
}

// record makes the exit record of a child that ended.
func (info childInfo) record(startedAt time.Time, usage *unix.Rusage) ExitRecord {
	now := time.Now()
	rec := ExitRecord{
		UserTime:    time.Duration(usage.Utime.Nano()),
		SystemTime:  time.Duration(usage.Stime.Nano()),
		MaxRSSBytes: largestAbove(usage.Maxrss) << 10,
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

// largestAbove returns a child's largest resident set, in KiB, if it is the child's: the kernel begins counting with
// that of the process that forked it, whose memory the child has until its exec.
func largestAbove(maxrss int64) int64 {
	var own unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &own); err == nil && maxrss <= own.Maxrss {
		return 0
	}
	return maxrss
}
