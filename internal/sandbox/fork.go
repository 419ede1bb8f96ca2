package sandbox

import (
	"encoding/binary"
	"errors"
	"math"
	"runtime"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/sandbox/openfiles"
)

// ForkExec forks and executes the program. In between the child makes the system calls
// that set up its session, files, signals and limits, and those that confine it. Of
// attr, only Setsid, Setpgid, PidFD, UseCgroupFD and CgroupFD are used. With Setsid the
// terminal of the program becomes its controlling terminal.
//
// The calls have to be made in the child, not by a thread of this process that then
// forks: Landlock lets the tasks of a domain trace each other, so the program could
// read the memory of this process as long as that thread exists; and only a process
// with a single thread can enter a user namespace.
//
// If a call of the sandbox fails, the error is an [Error] of kind NotStarted, if a limit
// cannot be set a [LimitError], and otherwise the errno. If execve fails, the backend
// determines the error; without a sandbox it is the errno.
func (p Program) ForkExec(attr syscall.SysProcAttr) (pid int, err error) {
	c, err := newForkChild(&p, &attr)
	if err != nil {
		return 0, err
	}
	forks.begin()
	child, errno := c.fork()
	runtimeAfterFork()
	forks.end()
	runtime.KeepAlive(c)
	if errno != 0 {
		return 0, errno
	}
	if c.errno != 0 {
		c.reap(int(child))
		return 0, c.failure()
	}
	if attr.PidFD != nil {
		*attr.PidFD = int(c.pidfd)
	}
	if p.OOMScoreDenied != nil {
		*p.OOMScoreDenied = p.OOMScore != "" && c.results[c.oomScore.result-1] != uintptr(len(p.OOMScore))
	}
	return int(child), nil
}

// forks is shared by all forks of this program.
var forks = newForkLock()

// forkLock holds syscall.ForkLock while there are forks under way. Like those of package
// syscall they run concurrently.
type forkLock struct {
	mu       sync.Mutex
	released sync.Cond
	underWay int // guarded by mu, like the following
	begun    int // since ForkLock was locked
}

// maxForkBatch is how many forks begin before ForkLock is unlocked for others.
const maxForkBatch = 64

func newForkLock() *forkLock {
	l := &forkLock{}
	l.released.L = &l.mu
	return l
}

func (l *forkLock) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.underWay > 0 && l.begun >= maxForkBatch {
		l.released.Wait()
	}
	if l.underWay == 0 {
		syscall.ForkLock.Lock()
		l.begun = 0
	}
	l.underWay++
	l.begun++
}

func (l *forkLock) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.underWay--; l.underWay == 0 {
		syscall.ForkLock.Unlock()
		l.released.Broadcast()
	}
}

// forkChild is what the child uses between fork and execve. It is shared with the
// parent, which reads pidfd, step and errno.
type forkChild struct {
	flags     uintptr
	args      cloneArgs // of clone3
	cgroup    bool      // use clone3
	path      *byte
	argv, env []*byte

	childCalls
	results []uintptr

	pidfd int32
	step  int // index of the failed call; len(calls): execve
	errno syscall.Errno
}

// cloneArgs is struct clone_args of the kernel.
type cloneArgs struct {
	flags, pidFD, childTID, parentTID, exitSignal, stack, stackSize, tls, setTID, setTIDSize, cgroup uint64
}

func newForkChild(p *Program, attr *syscall.SysProcAttr) (*forkChild, error) {
	c := &forkChild{flags: unix.CLONE_VFORK | unix.CLONE_VM, pidfd: -1}
	var errs [3]error
	c.path, errs[0] = syscall.BytePtrFromString(p.Path)
	c.argv, errs[1] = syscall.SlicePtrFromStrings(p.Argv)
	c.env, errs[2] = syscall.SlicePtrFromStrings(p.Env)
	if err := errors.Join(errs[:]...); err != nil || hasNUL(p.Dir) {
		return nil, syscall.EINVAL
	}
	further := p.calls
	if further == nil {
		further = &childCalls{}
	}
	c.calls = make([]childCall, 0, usualCalls+len(further.calls))
	if err := c.setUp(p, attr); err != nil {
		return nil, err
	}
	c.addAll(further)
	c.results = make([]uintptr, len(c.calls))
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

// usualCalls is how many calls of setUp there usually are.
const usualCalls = 16

// setUp adds the calls that every child makes. Limits are last, because they apply to
// other calls, too.
func (p *childCalls) setUp(program *Program, attr *syscall.SysProcAttr) error {
	if attr.Setsid {
		p.call(unix.SYS_SETSID)
	}
	if attr.Setpgid {
		p.call(unix.SYS_SETPGID, literal(0), literal(0))
	}
	if program.User == nil {
		p.call(unix.SYS_CHDIR, p.text(program.Dir))
	}
	p.placeFiles(program.Files)
	if attr.Setsid && program.Terminal >= 0 {
		p.call(unix.SYS_IOCTL, literal(program.Terminal), literal(unix.TIOCSCTTY), literal(1))
	}
	p.resetSignals(program)
	if program.OOMScore != "" {
		score := p.callOptional(unix.SYS_OPENAT, cwdFD, p.text("/proc/self/oom_score_adj"), literal(unix.O_WRONLY|unix.O_CLOEXEC), literal(0))
		p.oomScore = p.callOptional(unix.SYS_WRITE, score, p.text(program.OOMScore), literal(len(program.OOMScore)))
		p.callOptional(unix.SYS_CLOSE, score)
	}
	if err := p.setLimits(program); err != nil || program.User == nil {
		return err
	}
	p.becomeUser(*program.User, program.Dir)
	return nil
}

// becomeUser gives up the user and the privileges of this process, and enters the working
// directory as the other user. It comes after the calls that need privileges.
//
// The real user is last, because from then on processes of the other user may signal the child,
// which shares its memory with this process and blocks one of its threads until execve. So that
// they cannot read the memory it is not dumpable, and stays so in this process; the kernel does
// the same at every change of the user, unless fs.suid_dumpable says otherwise.
func (p *childCalls) becomeUser(user Credential, dir string) {
	uid, gid, same := literal(int(user.UID)), literal(int(user.GID)), literal(-1)
	p.fail = func(errno syscall.Errno) error { return &CredentialError{Err: errno} }
	groups := literal(0)
	if len(user.Groups) > 0 {
		list := make([]byte, 0, 4*len(user.Groups))
		for _, group := range user.Groups {
			list = binary.NativeEndian.AppendUint32(list, group)
		}
		groups = p.point(list)
	}
	p.call(unix.SYS_SETGROUPS, literal(len(user.Groups)), groups)
	p.call(unix.SYS_SETRESGID, gid, gid, gid)
	p.call(unix.SYS_SETRESUID, same, uid, same)
	p.call(unix.SYS_CAPSET, p.words(unix.LINUX_CAPABILITY_VERSION_3), p.words(0, 0, 0)) // also inheritable and ambient ones
	p.fail = nil
	p.call(unix.SYS_CHDIR, p.text(dir))
	p.fail = func(errno syscall.Errno) error { return &CredentialError{Err: errno} }
	p.call(unix.SYS_PRCTL, literal(unix.PR_SET_DUMPABLE), literal(0), literal(0), literal(0), literal(0))
	p.call(unix.SYS_SETRESUID, uid, uid, uid)
	p.fail = nil
}

// placeFiles makes files the descriptors from 0 on.
func (p *childCalls) placeFiles(files []int) {
	files = append([]int(nil), files...)
	next := len(files) // no descriptor is used from here on
	for _, fd := range files {
		next = max(next, fd+1)
	}
	for i, fd := range files {
		if fd < i { // it would be overwritten
			p.call(unix.SYS_DUP3, literal(fd), literal(next), literal(unix.O_CLOEXEC))
			files[i] = next
			next++
		}
	}
	for i, fd := range files {
		if fd == i {
			p.call(unix.SYS_FCNTL, literal(i), literal(unix.F_SETFD), literal(0))
		} else {
			p.call(unix.SYS_DUP3, literal(fd), literal(i), literal(0))
		}
	}
}

// signalSetBytes is the size of a set of signals.
const signalSetBytes = 8

// resetSignals sets the dispositions and the mask of signals. Package runtime has reset
// those that this process handles.
func (p *childCalls) resetSignals(program *Program) {
	if len(program.ResetSignals) > 0 {
		action := p.words(0, 0, 0, 0) // struct sigaction: SIG_DFL, without flags or mask
		for _, sig := range program.ResetSignals {
			p.callOptional(unix.SYS_RT_SIGACTION, literal(int(sig)), action, literal(0), literal(signalSetBytes))
		}
	}
	mask := p.words(0)
	if program.setUpInside {
		mask = p.words(math.MaxUint64)
	}
	p.call(unix.SYS_RT_SIGPROCMASK, literal(unix.SIG_SETMASK), mask, literal(0), literal(signalSetBytes))
}

// setLimits sets the nice value and the limits, and restores the limit of open files
// unless package innerexec does.
func (p *childCalls) setLimits(program *Program) error {
	if program.Nice != 0 {
		reversed, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
		if err != nil {
			return &LimitError{Resource: ResourceNice, Err: err}
		}
		const lowest, highest = -20, 19
		nice := 20 - reversed // the system call returns 40 to 1 for -20 to 19
		p.fail = func(errno syscall.Errno) error { return &LimitError{Resource: ResourceNice, Err: errno} }
		p.call(unix.SYS_SETPRIORITY, literal(unix.PRIO_PROCESS), literal(0), literal(min(highest, max(lowest, nice+program.Nice))))
	}
	openFiles := false
	for _, limit := range program.Limits {
		openFiles = openFiles || limit.Resource == unix.RLIMIT_NOFILE
		p.fail = func(errno syscall.Errno) error { return &LimitError{Resource: limit.Resource, Err: errno} }
		p.setLimit(limit)
	}
	p.fail = nil
	if openFiles || program.setUpInside {
		return nil
	}
	if limit, differs := openfiles.Children(); differs {
		p.setLimit(Limit{Resource: unix.RLIMIT_NOFILE, Soft: limit.Soft, Hard: limit.Hard})
	}
	return nil
}

func (p *childCalls) setLimit(limit Limit) {
	p.call(unix.SYS_PRLIMIT64, literal(0), literal(limit.Resource), p.words(limit.Soft, limit.Hard), literal(0))
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
		i      int
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
	runtimeAfterForkInChild()
	for c.step = 0; c.step < len(c.calls); c.step++ {
		call = &c.calls[c.step]
		if call.compare != nil {
			if *call.compare != call.want {
				errno = syscall.ESTALE
				goto failed
			}
			continue
		}
		for i = 0; i < maxArgs; i++ {
			args[i] = call.args[i].value
			if call.args[i].result != 0 {
				args[i] = c.results[call.args[i].result-1]
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
func (c *forkChild) failure() error {
	fail := c.execFailed
	if c.step < len(c.calls) {
		fail = c.calls[c.step].fail
	}
	if fail == nil {
		return c.errno
	}
	return fail(c.errno)
}
