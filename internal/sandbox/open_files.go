package sandbox

import (
	"errors"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// openFilesLimit returns RLIMIT_NOFILE for children. Package syscall raises the soft
// limit of this process at the start, and restores the original one in its own
// children, unless the program has changed the limit since. raised is set if a child
// must restore it.
func openFilesLimit() (limit unix.Rlimit, raised bool, err error) {
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return limit, false, err
	}
	if limit.Cur != limit.Max-1 {
		return limit, false, nil // not raised, or changed since
	}
	first, err := firstOpenFilesLimit()
	if err != nil {
		return limit, false, err
	}
	if first.Max != limit.Max {
		return limit, false, nil
	}
	return first, first != limit, nil
}

// firstOpenFilesLimit returns the original limit. Package syscall does not export it,
// so this reads the limit of a child.
var firstOpenFilesLimit = sync.OnceValues(func() (limit unix.Rlimit, err error) {
	runtime.LockOSThread() // the tracer is the thread that forks
	defer runtime.UnlockOSThread()
	pid, err := syscall.ForkExec("/proc/self/exe", []string{"execwire-limits"}, &syscall.ProcAttr{
		Dir: "/", Sys: &syscall.SysProcAttr{Setpgid: true, Ptrace: true},
	})
	if err != nil {
		return limit, err
	}
	defer killGroup(pid)
	for {
		if _, err := unix.Wait4(pid, nil, 0, nil); !errors.Is(err, unix.EINTR) { // it stops at its first instruction
			break
		}
	}
	return limit, unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &limit)
})
