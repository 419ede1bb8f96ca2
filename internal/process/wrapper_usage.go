package process

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/procfs"
)

// findInit finds the init of the namespace below a wrapper. The resources that the program used are
// those that the init waited for; the wrapper does not wait for the init. It fails on kernels that
// do not list children.
func findInit(leader int) (procfs.Stat, bool) {
	children, _ := procfs.Children(leader)
	if len(children) != 1 {
		return procfs.Stat{}, false
	}
	found, err := procfs.ReadStat(children[0])
	return found, err == nil && found.PPID == leader
}

// initExitTimeout bounds the wait for an init that is about to end, which takes long on a busy
// machine.
const initExitTimeout = time.Second

// addNamespaceUsage adds the usage that an init waited for to the record of its dead wrapper, as
// far as it is known: all of it if the init is a dead child of this program, and without the
// resident set while it still waits for others. It may block for a moment. A dead init is reaped:
// the kernel has killed its whole namespace before, so its zombie is not needed to find
// descendants, and without it the process closes without a scan.
func (r *ExitRecord) addNamespaceUsage(init procfs.Stat) {
	if left, err := procfs.Children(init.PID); err == nil && len(left) == 0 { // it is about to end
		if fd, err := procfs.OpenPidfd(init); err == nil {
			waitDead(fd, initExitTimeout)
			_ = unix.Close(fd)
		}
	}
	var usage unix.Rusage
	var info unix.Siginfo
	now, err := procfs.ReadStat(init.PID)
	if err != nil || now.ID() != init.ID() {
		return
	}
	_ = waitID(unix.P_PID, init.PID, &info, unix.WEXITED|unix.WNOHANG, &usage)
	if info.Signo != 0 {
		r.UserTime += time.Duration(usage.Utime.Nano())
		r.SystemTime += time.Duration(usage.Stime.Nano())
		r.MaxRSSBytes = max(r.MaxRSSBytes, childMaxRSS(usage.Maxrss)<<10)
		return
	}
	r.UserTime += now.ChildrenUser
	r.SystemTime += now.ChildrenSystem
}

// endSignal returns the signal that ended the program, also if its wrapper turned it into an exit
// code.
func (w *wrapper) endSignal(record ExitRecord) syscall.Signal {
	if w != nil && record.Signal == 0 && record.Code > 128 {
		return syscall.Signal(record.Code - 128)
	}
	return record.Signal
}

// cpuTime returns the CPU time of the process as RLIMIT_CPU counts it. For a program in a wrapper
// only the scaled time is known, which can be much less. The margin does no harm, because no other
// cause of its end is known.
func (w *wrapper) cpuTime(record ExitRecord, leader int) time.Duration {
	if w == nil {
		return cpuClock(leader)
	}
	spent := record.UserTime + record.SystemTime
	return spent + spent/2
}
