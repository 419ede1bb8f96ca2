package process

import (
	"fmt"
	"math"
	"os"
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

// limits returns the limits of the child. None of its processes may exceed userProcesses, unless
// that is 0, or the processes of another user count.
func (s *Spec) limits(userProcesses uint64) (limits []sandbox.Limit) {
	all := s.ResourceLimits
	if s.User != nil && int(s.User.UID) != os.Getuid() {
		userProcesses = 0
	}
	if userProcesses > 0 && !slices.ContainsFunc(all, func(l Limit) bool { return l.Resource == ResourceUserProcesses }) {
		var own unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NPROC, &own); err == nil {
			all = append(slices.Clip(all), Limit{Resource: ResourceUserProcesses, Soft: own.Cur, Hard: own.Max})
		}
	}
	for _, l := range all {
		if l.Resource == ResourceUserProcesses && userProcesses > 0 {
			l.Soft, l.Hard = min(l.Soft, userProcesses), min(l.Hard, userProcesses)
		}
		limits = append(limits, sandbox.Limit{Resource: rlimits[l.Resource], Soft: l.Soft, Hard: l.Hard})
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

// limitError returns the typed error for a limit that cannot be set.
func (s *Spec) limitError(failed *sandbox.LimitError) *Error {
	field, remedy := "nice", "less than 0 needs privileges; ask for 0 or more"
	for i, limit := range s.ResourceLimits {
		if rlimits[limit.Resource] == failed.Resource {
			field, remedy = fmt.Sprintf("resource_limits[%d]", i), limit.remedy()
		}
	}
	kind := Internal
	if isAnyOf(failed.Err, unix.EPERM, unix.EACCES) {
		kind = PermissionDenied
	}
	return &Error{Kind: kind, Field: field, Err: fmt.Errorf("cannot be set: %w; %s", failed.Err, remedy), operation: "start process"}
}

// remedy returns what the caller can ask for instead.
func (l Limit) remedy() string {
	var own unix.Rlimit
	if err := unix.Getrlimit(rlimits[l.Resource], &own); err != nil || own.Max == NoLimit {
		return "ask for less, which is more than the system allows"
	}
	return fmt.Sprintf("more than %d, the server's own hard limit, needs privileges; ask for no more", own.Max)
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
