package process

import (
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// inherited is what the server got from whoever started it and its children must not get: ignored signals, a signal
// mask, descriptors.
type inherited struct {
	masked  bool
	ignored chan os.Signal // never read; nil: nothing is ignored
}

// shedInherited keeps descriptors from passing through exec and makes signals that are ignored be handled, which exec
// turns into the default. It changes this whole process.
func shedInherited() inherited {
	_ = unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC)
	in := inherited{masked: masksSignals()}
	ignored := slices.DeleteFunc(ignoredSignals(), resetReserved)
	if len(ignored) > 0 {
		in.ignored = make(chan os.Signal, 1)
		signal.Notify(in.ignored, ignored...) // delivery drops what the channel has no room for
	}
	return in
}

// The signals that C libraries keep for themselves, and Go therefore does not handle. A program that glibc's
// posix_spawn started, make's for one, ignores them.
const firstReserved, lastReserved = syscall.Signal(32), syscall.Signal(34)

// resetReserved sets such a signal to its default, and does nothing for any other.
func resetReserved(sig os.Signal) bool {
	n, ok := sig.(syscall.Signal)
	if !ok || n < firstReserved || n > lastReserved {
		return false
	}
	var action [4]uint64 // a struct sigaction of the kernel, in which SIG_DFL, no flags and no mask are all zeros
	_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(n), uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
	return true
}

// release puts ignored signals back as they were.
func (in inherited) release() {
	if in.ignored != nil {
		signal.Stop(in.ignored)
	}
}

// clearMask empties the calling thread's signal mask, which a fork passes on, until restore is called.
func (in inherited) clearMask() (restore func()) {
	if !in.masked {
		return func() {}
	}
	runtime.LockOSThread()
	var empty, old unix.Sigset_t
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &empty, &old); err != nil {
		return runtime.UnlockOSThread
	}
	return func() {
		_ = unix.PthreadSigmask(unix.SIG_SETMASK, &old, nil)
		runtime.UnlockOSThread()
	}
}

// masksSignals tells whether this thread blocks any signal. Go gives all its threads the mask it was started with.
func masksSignals() bool {
	var mask unix.Sigset_t
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, nil, &mask); err != nil {
		return true
	}
	return mask != unix.Sigset_t{}
}

func ignoredSignals() []os.Signal {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return nil
	}
	_, rest, _ := strings.Cut(string(text), "\nSigIgn:")
	field, _, _ := strings.Cut(rest, "\n")
	mask, err := strconv.ParseUint(strings.TrimSpace(field), 16, 64)
	if err != nil {
		return nil
	}
	var ignored []os.Signal
	for n := range 64 {
		if mask&(1<<n) != 0 {
			ignored = append(ignored, syscall.Signal(n+1))
		}
	}
	return ignored
}
