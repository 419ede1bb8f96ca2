package process

import (
	"errors"
	"fmt"
	"math"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Resource is what a limit of the operating system bounds.
type Resource uint8

// The resources of setrlimit(2), and their units. There is no zero resource.
const (
	ResourceCPUSeconds        Resource = iota + 1 // processor time; who exceeds it is killed with CauseLimit
	ResourceFileBytes                             // the largest file written; who exceeds it is killed with CauseLimit
	ResourceDataBytes                             // the data segment
	ResourceStackBytes                            // the stack
	ResourceCoreBytes                             // the largest core file
	ResourceUserProcesses                         // processes and threads of the user, on the whole machine
	ResourceOpenFiles                             // one more than the highest descriptor
	ResourceLockedBytes                           // locked memory
	ResourceAddressSpaceBytes                     // the address space
)

// rlimits are the system's numbers of the resources.
var rlimits = [...]int{
	ResourceCPUSeconds:        unix.RLIMIT_CPU,
	ResourceFileBytes:         unix.RLIMIT_FSIZE,
	ResourceDataBytes:         unix.RLIMIT_DATA,
	ResourceStackBytes:        unix.RLIMIT_STACK,
	ResourceCoreBytes:         unix.RLIMIT_CORE,
	ResourceUserProcesses:     unix.RLIMIT_NPROC,
	ResourceOpenFiles:         unix.RLIMIT_NOFILE,
	ResourceLockedBytes:       unix.RLIMIT_MEMLOCK,
	ResourceAddressSpaceBytes: unix.RLIMIT_AS,
}

// resourceNames are what the resources are called where they are asked for.
var resourceNames = [...]string{
	ResourceCPUSeconds:        "cpu-seconds",
	ResourceFileBytes:         "file-bytes",
	ResourceDataBytes:         "data-bytes",
	ResourceStackBytes:        "stack-bytes",
	ResourceCoreBytes:         "core-bytes",
	ResourceUserProcesses:     "user-processes",
	ResourceOpenFiles:         "open-files",
	ResourceLockedBytes:       "locked-bytes",
	ResourceAddressSpaceBytes: "address-space-bytes",
}

func (r Resource) String() string {
	if r == 0 || int(r) >= len(resourceNames) {
		return fmt.Sprintf("resource(%d)", uint8(r))
	}
	return resourceNames[r]
}

// NoLimit is a limit that bounds nothing.
const NoLimit uint64 = math.MaxUint64 // RLIM_INFINITY

// Limit bounds one resource of a process, and of each of its descendants for itself.
type Limit struct {
	Resource Resource // none twice
	Soft     uint64   // what is enforced, in the resource's unit
	Hard     uint64   // how far the process may raise it, at least Soft
}

// MaxNice is the most that can be added to a nice value, up or down: from one end of its range to the other.
const MaxNice = 39

// limited tells whether something has to be set between the execution of the program and its first instruction.
func (s *Spec) limited() bool { return len(s.ResourceLimits) > 0 || s.Nice != 0 }

func (s *Spec) validateLimits() error {
	switch {
	case s.Timeout < 0:
		return invalid("timeout", "is negative; give 0 for none")
	case s.NoOutputTimeout < 0:
		return invalid("no_output_timeout", "is negative; give 0 for none")
	case s.Nice < -MaxNice || s.Nice > MaxNice:
		return invalid("nice", fmt.Sprintf("%d is not between %d and %d", s.Nice, -MaxNice, MaxNice))
	}
	var seen [len(rlimits)]bool
	for i, limit := range s.ResourceLimits {
		field := fmt.Sprintf("resource_limits[%d]", i)
		switch {
		case limit.Resource == 0 || int(limit.Resource) >= len(rlimits):
			return invalid(field, fmt.Sprintf("%d is no resource", limit.Resource))
		case seen[limit.Resource]:
			return invalid(field, "limits a resource that has a limit already; give each at most once")
		case limit.Soft > limit.Hard:
			return invalid(field, fmt.Sprintf("has %d above its hard limit, %d", limit.Soft, limit.Hard))
		}
		seen[limit.Resource] = true
	}
	return nil
}

// applyLimits gives a child its limits. It stopped when it executed its program, traced by this thread, and goes on
// when they are set, and the restraint beside them; if one cannot be it is killed, for the caller to reap.
func (s *Spec) applyLimits(pid int, beside restraint) error {
	alive, err := awaitStop(pid)
	if err == nil && alive {
		if err = s.setLimits(pid); err == nil {
			beside.apply(pid)
		}
	}
	if err != nil {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	if alive {
		_ = unix.PtraceDetach(pid)
	}
	return err
}

// unblockTrap lets the calling thread's child stop when it has executed its program, although it blocks all other
// signals, until restore is called.
func unblockTrap() (restore func(), err error) {
	var trap, old unix.Sigset_t
	trap.Val[0] = 1 << (unix.SIGTRAP - 1)
	if err := unix.PthreadSigmask(unix.SIG_UNBLOCK, &trap, &old); err != nil {
		return nil, startError(Internal, "", fmt.Errorf("could not prepare for its limits: %w", err))
	}
	return func() { _ = unix.PthreadSigmask(unix.SIG_SETMASK, &old, nil) }, nil
}

// awaitStop waits until a traced child stops. It reports false if somebody killed it, and leaves that to be reaped.
func awaitStop(pid int) (alive bool, err error) {
	for {
		var raw unix.Siginfo
		err := unix.Waitid(unix.P_PID, pid, &raw, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil)
		switch {
		case err == nil:
			return raw.Code == cldTrapped, nil
		case !errors.Is(err, unix.EINTR):
			return false, startError(Internal, "", fmt.Errorf("could not wait for it to stop for its limits: %w", err))
		}
	}
}

func (s *Spec) setLimits(pid int) error {
	for i, limit := range s.ResourceLimits {
		if err := limit.set(pid); err != nil && !errors.Is(err, unix.ESRCH) {
			return limitError(fmt.Sprintf("resource_limits[%d]", i), err, limit.fix())
		}
	}
	if s.Nice == 0 {
		return nil
	}
	if err := addNice(pid, s.Nice); err != nil && !errors.Is(err, unix.ESRCH) {
		return limitError("nice", err, "less than 0 needs privileges; ask for 0 or more")
	}
	return nil
}

func (l Limit) set(pid int) error {
	return unix.Prlimit(pid, rlimits[l.Resource], &unix.Rlimit{Cur: l.Soft, Max: l.Hard}, nil)
}

// fix says what the most is that may be asked for.
func (l Limit) fix() string {
	var own unix.Rlimit
	if err := unix.Prlimit(0, rlimits[l.Resource], nil, &own); err != nil || own.Max == NoLimit {
		return "ask for less, which is more than the system allows"
	}
	return fmt.Sprintf("more than %d, the server's own hard limit, needs privileges; ask for no more", own.Max)
}

// addNice adds to what the child got from this process.
func addNice(pid, add int) error {
	reversed, err := unix.Getpriority(unix.PRIO_PROCESS, pid)
	if err != nil {
		return err
	}
	const lowest, highest = -20, 19
	nice := 20 - reversed // the system call answers 40 to 1 for -20 to 19
	return unix.Setpriority(unix.PRIO_PROCESS, pid, min(highest, max(lowest, nice+add)))
}

func limitError(field string, err error, fix string) *Error {
	kind := Internal
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		kind = PermissionDenied
	}
	return &Error{Kind: kind, Field: field, Err: fmt.Errorf("cannot be set: %w; %s", err, fix), verb: "start process"}
}

// killedByLimit tells whether a process that nobody ended was killed because it exceeded one of its limits. It is a zombie.
func (p *Process) killedByLimit(record ExitRecord) bool {
	signal := p.endedBy(record)
	for _, limit := range p.spec.ResourceLimits {
		switch {
		case limit.Resource == ResourceFileBytes && signal == syscall.SIGXFSZ,
			limit.Resource == ResourceCPUSeconds && signal == syscall.SIGXCPU,
			limit.Resource == ResourceCPUSeconds && signal == syscall.SIGKILL && limit.usedUp(p.cpuSpent(record)):
			return true
		}
	}
	return false
}

// usedUp tells whether the processor time came to the hard limit.
func (l Limit) usedUp(spent time.Duration) bool {
	const most = uint64(math.MaxInt64 / time.Second)
	return spent >= time.Duration(min(l.Hard, most))*time.Second
}

// cpuTicks is the processor time of a process as the kernel counts it to enforce a limit: by whole ticks of its clock on
// most kernels. What it reports in an rusage is scaled to the exact time, and can be a good deal less or more.
func cpuTicks(pid int) time.Duration {
	clock := int32(^pid << 3) // CPUCLOCK_PROF of the process: see MAKE_PROCESS_CPUCLOCK of the kernel
	var spent unix.Timespec
	if err := unix.ClockGettime(clock, &spent); err != nil {
		return 0
	}
	return time.Duration(spent.Nano())
}
