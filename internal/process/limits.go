package process

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/sandbox"
)

// Resource is a resource that setrlimit(2) limits.
type Resource uint8

// The resources of setrlimit(2), and their units. There is no zero resource.
const (
	ResourceCPUSeconds        Resource = iota + 1 // CPU time; exceeding it kills the process with CauseLimit
	ResourceFileBytes                             // largest file written; exceeding it kills the process with CauseLimit
	ResourceDataBytes                             // the data segment
	ResourceStackBytes                            // the stack
	ResourceCoreBytes                             // the largest core file
	ResourceUserProcesses                         // processes and threads of the user, on the whole machine
	ResourceOpenFiles                             // one more than the highest descriptor
	ResourceLockedBytes                           // locked memory
	ResourceAddressSpaceBytes                     // the address space
)

// rlimits are the numbers of the resources in setrlimit(2).
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

// NoLimit is the value of an unlimited resource.
const NoLimit uint64 = math.MaxUint64 // RLIM_INFINITY

// Limit limits a resource of a process. Each of its descendants has the same limit for itself.
type Limit struct {
	Resource Resource // at most one limit for each
	Soft     uint64   // enforced, in the unit of the resource
	Hard     uint64   // to which the process may raise Soft; at least Soft
}

// MaxNice is the largest change of a nice value: the width of its range.
const MaxNice = 39

// needsPtrace reports whether the child has to stop after its exec, so that limits can be set
// before its first instruction.
func (s *Spec) needsPtrace() bool {
	if s.Nice != 0 || !s.limitsSetInSandbox() {
		return s.Nice != 0 || len(s.ResourceLimits) > 0
	}
	return slices.ContainsFunc(s.ResourceLimits, func(limit Limit) bool {
		var own unix.Rlimit
		err := unix.Prlimit(0, rlimits[limit.Resource], nil, &own)
		return err != nil || limit.Hard > own.Max
	})
}

// limitsSetInSandbox reports whether the child is not the program but sets up its sandbox. The limits
// do not apply to the setup: they are set inside the sandbox, before the program is executed. Only
// hard limits above those of this process are set from outside, because that needs privileges.
func (s *Spec) limitsSetInSandbox() bool { return s.Sandbox != nil && s.Sandbox.Report().ExitByCode }

// sandboxLimits returns the limits to set inside the sandbox.
func (s *Spec) sandboxLimits() []sandbox.Limit {
	limits := make([]sandbox.Limit, len(s.ResourceLimits))
	for i, limit := range s.ResourceLimits {
		limits[i] = sandbox.Limit{Resource: rlimits[limit.Resource], Soft: limit.Soft, Hard: limit.Hard}
	}
	return limits
}

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

// applyLimits sets the limits of a child that is traced by this thread and stops after its exec,
// together with extra, and detaches. If that fails the child is killed, and the caller has to reap
// it.
func (s *Spec) applyLimits(pid int, extra childLimits) error {
	alive, err := waitStop(pid)
	if err == nil && alive {
		if err = s.setLimits(pid); err == nil {
			extra.apply(pid)
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

// unblockSIGTRAP lets the child of the calling thread stop after its exec although it blocks all
// other signals, until restore is called.
func unblockSIGTRAP() (restore func(), err error) {
	var trap, previous unix.Sigset_t
	trap.Val[0] = 1 << (unix.SIGTRAP - 1)
	if err := unix.PthreadSigmask(unix.SIG_UNBLOCK, &trap, &previous); err != nil {
		return nil, startError(Internal, "", fmt.Errorf("could not prepare for its limits: %w", err))
	}
	return func() { _ = unix.PthreadSigmask(unix.SIG_SETMASK, &previous, nil) }, nil
}

// waitStop waits until a traced child stops. It returns false if the child was killed, and does not
// reap it.
func waitStop(pid int) (alive bool, err error) {
	var raw unix.Siginfo
	if err := waitID(unix.P_PID, pid, &raw, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		return false, startError(Internal, "", fmt.Errorf("could not wait until it stops for its limits: %w", err))
	}
	return raw.Code == cldTrapped, nil
}

func (s *Spec) setLimits(pid int) error {
	for i, limit := range s.ResourceLimits {
		set := limit.set
		if s.limitsSetInSandbox() {
			set = limit.raise
		}
		if err := set(pid); err != nil && !errors.Is(err, unix.ESRCH) {
			return limitError(fmt.Sprintf("resource_limits[%d]", i), err, limit.remedy())
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

// raise raises the hard limit of a process if it is lower, and keeps the soft limit.
func (l Limit) raise(pid int) error {
	var current unix.Rlimit
	if err := unix.Prlimit(pid, rlimits[l.Resource], nil, &current); err != nil || l.Hard <= current.Max {
		return err
	}
	return unix.Prlimit(pid, rlimits[l.Resource], &unix.Rlimit{Cur: current.Cur, Max: l.Hard}, nil)
}

// remedy returns what the caller can ask for instead.
func (l Limit) remedy() string {
	var own unix.Rlimit
	if err := unix.Prlimit(0, rlimits[l.Resource], nil, &own); err != nil || own.Max == NoLimit {
		return "ask for less, which is more than the system allows"
	}
	return fmt.Sprintf("more than %d, the server's own hard limit, needs privileges; ask for no more", own.Max)
}

// addNice adds to the inherited nice value.
func addNice(pid, add int) error {
	reversed, err := unix.Getpriority(unix.PRIO_PROCESS, pid)
	if err != nil {
		return err
	}
	const lowest, highest = -20, 19
	nice := 20 - reversed // the system call returns 40 to 1 for -20 to 19
	return unix.Setpriority(unix.PRIO_PROCESS, pid, min(highest, max(lowest, nice+add)))
}

func limitError(field string, err error, remedy string) *Error {
	kind := Internal
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		kind = PermissionDenied
	}
	return &Error{Kind: kind, Field: field, Err: fmt.Errorf("cannot be set: %w; %s", err, remedy), operation: "start process"}
}

// isExceededLimit reports whether a process was killed because it exceeded a limit. It must not be
// reaped yet.
func (s *Spec) isExceededLimit(record ExitRecord, w *wrapper, leader int) bool {
	signal := w.endSignal(record)
	for _, limit := range s.ResourceLimits {
		switch {
		case limit.Resource == ResourceFileBytes && signal == syscall.SIGXFSZ,
			limit.Resource == ResourceCPUSeconds && signal == syscall.SIGXCPU,
			limit.Resource == ResourceCPUSeconds && signal == syscall.SIGKILL && limit.isReachedBy(w.cpuTime(record, leader)):
			return true
		}
	}
	return false
}

// isReachedBy reports whether a CPU time reaches the hard limit.
func (l Limit) isReachedBy(spent time.Duration) bool {
	const most = uint64(math.MaxInt64 / time.Second)
	return spent >= time.Duration(min(l.Hard, most))*time.Second
}

// cpuClock returns the CPU time of a process as the kernel counts it for RLIMIT_CPU, on most
// kernels in whole clock ticks. The time in an rusage is scaled, and can be much less or more.
func cpuClock(pid int) time.Duration {
	clock := int32(^pid << 3) // CPUCLOCK_PROF of the process, see MAKE_PROCESS_CPUCLOCK of the kernel
	var spent unix.Timespec
	if err := unix.ClockGettime(clock, &spent); err != nil {
		return 0
	}
	return time.Duration(spent.Nano())
}
