package process

import (
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/procfs"
)

// inherited is what this program inherited from its parent and its children must not inherit:
// ignored signals, a signal mask, descriptors.
type inherited struct {
	masked  bool
	ignored chan os.Signal // never read; nil: no signal is ignored
}

// resetInherited sets close-on-exec for all descriptors, and installs handlers for ignored signals,
// which exec resets to the default. It changes this whole process.
func resetInherited() inherited {
	_ = unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC)
	in := inherited{masked: hasSignalMask()}
	ignored := slices.DeleteFunc(ignoredSignals(), resetIfReserved)
	if len(ignored) > 0 {
		in.ignored = make(chan os.Signal, 1)
		signal.Notify(in.ignored, ignored...) // package os/signal does not block
	}
	return in
}

// The signals that C libraries reserve, and Go therefore does not handle. A program that was
// started by posix_spawn of glibc, for example by make, ignores them.
const firstReserved, lastReserved = syscall.Signal(32), syscall.Signal(34)

// resetIfReserved sets such a signal to its default, and reports whether it is one.
func resetIfReserved(sig os.Signal) bool {
	n, ok := sig.(syscall.Signal)
	if !ok || n < firstReserved || n > lastReserved {
		return false
	}
	var action [4]uint64 // a struct sigaction of the kernel: zero is SIG_DFL without flags or mask
	_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(n), uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
	return true
}

// restore ignores the signals again.
func (in inherited) restore() {
	if in.ignored != nil {
		signal.Stop(in.ignored)
	}
}

// clearMask empties the signal mask of the calling thread, which a fork passes on, until restore is
// called.
func (in inherited) clearMask() (restore func()) {
	if !in.masked {
		return func() {}
	}
	runtime.LockOSThread()
	var empty, previous unix.Sigset_t
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &empty, &previous); err != nil {
		return runtime.UnlockOSThread
	}
	return func() {
		_ = unix.PthreadSigmask(unix.SIG_SETMASK, &previous, nil)
		runtime.UnlockOSThread()
	}
}

// hasSignalMask reports whether this thread blocks any signal. Go gives all threads the mask that
// the program was started with.
func hasSignalMask() bool {
	var mask unix.Sigset_t
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, nil, &mask); err != nil {
		return true
	}
	return mask != unix.Sigset_t{}
}

func ignoredSignals() []os.Signal {
	status, _ := procfs.Status(os.Getpid())
	mask, _ := strconv.ParseUint(status["SigIgn"], 16, 64)
	var ignored []os.Signal
	for n := range 64 {
		if mask&(1<<n) != 0 {
			ignored = append(ignored, syscall.Signal(n+1))
		}
	}
	return ignored
}
