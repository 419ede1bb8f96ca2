package sandbox

import (
	"errors"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ForkExec forks and executes the program like [syscall.ForkExec]. In between the child
// makes the system calls that confine it. Of attr, only Setsid, Setpgid, Pgid, Setctty,
// Ctty, Ptrace, PidFD, UseCgroupFD and CgroupFD are used.
//
// The calls have to be made in the child, not by a thread of this process that then
// forks: Landlock lets the tasks of a domain trace each other, so the program could
// read the memory of this process as long as that thread exists; and only a process
// with a single thread can enter a user namespace.
//
// If a call fails, the error is an [Error] of kind NotStarted. If execve fails, the
// backend determines the error.
func (p Program) ForkExec(attr syscall.SysProcAttr) (pid int, err error) {
	if p.calls == nil {
		files := make([]uintptr, len(p.Files))
		for i, fd := range p.Files {
			files[i] = uintptr(fd)
		}
		return syscall.ForkExec(p.Path, p.Argv, &syscall.ProcAttr{Dir: p.Dir, Env: p.Env, Files: files, Sys: &attr})
	}
	c, err := newForkChild(&p, &attr)
	if err != nil {
		return 0, err
	}
	syscall.ForkLock.Lock()
	child, errno := c.fork()
	runtimeAfterFork()
	syscall.ForkLock.Unlock()
	runtime.KeepAlive(p.calls)
	if errno != 0 {
		return 0, errno
	}
	if c.errno != 0 {
		c.reap(int(child))
		return 0, c.failure(p.calls)
	}
	if attr.PidFD != nil {
		*attr.PidFD = int(c.pidfd)
	}
	return int(child), nil
}

// forkChild is what the child uses between fork and execve. It is shared with the
// parent, which reads pidfd, step and errno.
type forkChild struct {
	flags     uintptr
	args      cloneArgs // of clone3
	cgroup    bool      // use clone3
	path, dir *byte
	argv, env []*byte
	files     []int
	nextFD    int // no descriptor is used from here on
	openFiles *unix.Rlimit

	session, group, terminal, traced bool
	groupID, terminalFD              int

	calls   []childCall
	results []uintptr

	pidfd int32
	step  int // index of the failed call; len(calls): execve; -1: before the calls
	errno syscall.Errno
}

// cloneArgs is struct clone_args of the kernel.
type cloneArgs struct {
	flags, pidFD, childTID, parentTID, exitSignal, stack, stackSize, tls, setTID, setTIDSize, cgroup uint64
}

func newForkChild(p *Program, attr *syscall.SysProcAttr) (*forkChild, error) {
	c := &forkChild{
		session: attr.Setsid, group: attr.Setpgid, groupID: attr.Pgid, terminal: attr.Setctty, terminalFD: attr.Ctty, traced: attr.Ptrace,
		flags: unix.CLONE_VFORK | unix.CLONE_VM, calls: p.calls.calls, results: make([]uintptr, len(p.calls.calls)),
		files: append([]int(nil), p.Files...), pidfd: -1,
	}
	var errs [4]error
	c.path, errs[0] = syscall.BytePtrFromString(p.Path)
	c.dir, errs[1] = syscall.BytePtrFromString(p.Dir)
	c.argv, errs[2] = syscall.SlicePtrFromStrings(p.Argv)
	c.env, errs[3] = syscall.SlicePtrFromStrings(p.Env)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, syscall.EINVAL
	}
	c.nextFD = len(c.files)
	for _, fd := range c.files {
		c.nextFD = max(c.nextFD, fd+1)
	}
	limit, raised, err := openFilesLimit()
	if err != nil {
		return nil, failed(NotStarted, "", "the limit of open files is not known", err)
	}
	if raised {
		c.openFiles = &limit
	}
	if attr.PidFD != nil {
		c.flags |= unix.CLONE_PIDFD
	}
	if attr.UseCgroupFD {
		c.cgroup = true
		c.args = cloneArgs{
			flags: uint64(c.flags) | unix.CLONE_INTO_CGROUP, exitSignal: uint64(unix.SIGCHLD), cgroup: uint64(attr.CgroupFD),
		}
		if attr.PidFD != nil {
			c.args.pidFD = uint64(uintptr(unsafe.Pointer(&c.pidfd)))
		}
	}
	c.flags |= uintptr(unix.SIGCHLD)
	return c, nil
}

// Hooks of package runtime around a fork, which it keeps for callers other than package
// syscall, too.
//
//go:linkname runtimeBeforeFork syscall.runtime_BeforeFork
func runtimeBeforeFork()

//go:linkname runtimeAfterFork syscall.runtime_AfterFork
func runtimeAfterFork()

//go:linkname runtimeAfterForkInChild syscall.runtime_AfterForkInChild
func runtimeAfterForkInChild()

func vforkSyscall(trap, a1, a2, a3 uintptr) (r1 uintptr, err syscall.Errno)

// fork forks the child. It returns only in the parent, once the child has executed the
// program or exited. The caller then calls runtimeAfterFork.
//
// The child runs on the stack and with the memory of the parent, which waits. So it must
// not return from this function, allocate, lock or grow the stack; it only makes system
// calls. forkAndExecInChild1 in package syscall has the same constraints.
//
//go:noinline
//go:norace
//go:nocheckptr
func (c *forkChild) fork() (pid uintptr, errno syscall.Errno) {
	var (
		i, j   int
		call   *childCall
		args   [maxArgs]uintptr
		result uintptr
	)
	runtimeBeforeFork()
	if c.cgroup {
		pid, errno = vforkSyscall(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&c.args)), unsafe.Sizeof(c.args), 0)
	} else {
		pid, errno = vforkSyscall(unix.SYS_CLONE, c.flags, 0, uintptr(unsafe.Pointer(&c.pidfd)))
	}
	if errno != 0 || pid != 0 {
		return pid, errno
	}

	// Only the child gets here.
	c.step = -1
	runtimeAfterForkInChild()
	if c.session {
		if _, _, errno = syscall.RawSyscall(unix.SYS_SETSID, 0, 0, 0); errno != 0 {
			goto failed
		}
	}
	if c.group {
		if _, _, errno = syscall.RawSyscall(unix.SYS_SETPGID, 0, uintptr(c.groupID), 0); errno != 0 {
			goto failed
		}
	}
	if _, _, errno = syscall.RawSyscall(unix.SYS_CHDIR, uintptr(unsafe.Pointer(c.dir)), 0, 0); errno != 0 {
		goto failed
	}
	// Move descriptors that would be overwritten out of the way.
	for i = 0; i < len(c.files); i++ {
		if c.files[i] < i {
			if _, _, errno = syscall.RawSyscall(unix.SYS_DUP3, uintptr(c.files[i]), uintptr(c.nextFD), unix.O_CLOEXEC); errno != 0 {
				goto failed
			}
			c.files[i] = c.nextFD
			c.nextFD++
		}
	}
	for i = 0; i < len(c.files); i++ {
		if c.files[i] == i {
			_, _, errno = syscall.RawSyscall(unix.SYS_FCNTL, uintptr(i), unix.F_SETFD, 0)
		} else {
			_, _, errno = syscall.RawSyscall(unix.SYS_DUP3, uintptr(c.files[i]), uintptr(i), 0)
		}
		if errno != 0 {
			goto failed
		}
	}
	if c.terminal {
		if _, _, errno = syscall.RawSyscall(unix.SYS_IOCTL, uintptr(c.terminalFD), unix.TIOCSCTTY, 1); errno != 0 {
			goto failed
		}
	}
	if c.openFiles != nil {
		if _, _, errno = syscall.RawSyscall6(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_NOFILE, uintptr(unsafe.Pointer(c.openFiles)), 0, 0, 0); errno != 0 {
			goto failed
		}
	}
	if c.traced {
		if _, _, errno = syscall.RawSyscall(unix.SYS_PTRACE, unix.PTRACE_TRACEME, 0, 0); errno != 0 {
			goto failed
		}
	}
	for c.step = 0; c.step < len(c.calls); c.step++ {
		call = &c.calls[c.step]
		if call.compare != nil {
			if *call.compare != call.want {
				errno = syscall.ESTALE
				goto failed
			}
			continue
		}
		for j = 0; j < maxArgs; j++ {
			args[j] = call.args[j]
			if call.results[j] != 0 {
				args[j] = c.results[call.results[j]-1]
			}
		}
		result, _, errno = syscall.RawSyscall6(call.number, args[0], args[1], args[2], args[3], args[4], args[5])
		if errno != 0 && !call.optional {
			goto failed
		}
		c.results[c.step] = result
	}
	_, _, errno = syscall.RawSyscall(unix.SYS_EXECVE, uintptr(unsafe.Pointer(c.path)), uintptr(unsafe.Pointer(&c.argv[0])), uintptr(unsafe.Pointer(&c.env[0])))

failed:
	c.errno = errno
	for {
		_, _, _ = syscall.RawSyscall(unix.SYS_EXIT, 253, 0, 0)
	}
}

// reap reaps a child that did not execute the program.
func (c *forkChild) reap(pid int) {
	if c.pidfd >= 0 {
		_ = unix.Close(int(c.pidfd))
	}
	for {
		if _, err := unix.Wait4(pid, nil, 0, nil); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// failure returns the error of a child that did not execute the program.
func (c *forkChild) failure(calls *childCalls) error {
	switch {
	case c.step < 0:
		return c.errno
	case c.step == len(c.calls):
		return calls.execFailed(c.errno)
	default:
		call := &c.calls[c.step]
		return failed(NotStarted, call.path, call.doing, c.errno)
	}
}
