package daemon

import (
	"github.com/execwire/execwire/internal/cgroup"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/syslimit"
)

// Threads to create in advance: the Go runtime crashes when it needs a thread and the
// system limit is reached.
const (
	serverThreads  = 64
	forwardThreads = 16 // of a gateway or a forward
)

// ProcessReserve describes how processes and threads are reserved for the server
// where the system limits them.
type ProcessReserve struct {
	// Limit is the number of processes and threads that the control group or the user
	// may have; 0 is unlimited.
	Limit uint64
	// ControlGroup is the limit of the control group of all processes; 0 if they have
	// none, or it cannot be limited.
	ControlGroup uint64
	// UserProcesses is the RLIMIT_NPROC of processes; 0 is that of the server.
	UserProcesses uint64
}

// ProcessReserve returns the reserve of this daemon.
func (d *Daemon) ProcessReserve() ProcessReserve { return d.reserve }

// reserveProcesses reserves a part of the processes and threads that this program may
// have. Processes get the rest, by a limit of their control group if it has the
// controller, otherwise by a lower RLIMIT_NPROC. Both leave at least a half to
// processes and the current threads of this program.
func reserveProcesses(cfg config.Config, system syslimit.System, groups *cgroup.Pool) (r ProcessReserve) {
	limit, limited := system.Processes()
	if !limited {
		return r
	}
	r.Limit = limit
	if cfg.ReservedProcesses == 0 {
		return r
	}
	// The limit of a control group counts processes only.
	if most := max(limit-min(uint64(cfg.ReservedProcesses), limit/2), 1); groups.LimitProcesses(most) == nil {
		r.ControlGroup = most
		return r
	}
	if limit, limited = system.UserProcesses(); limited {
		// RLIMIT_NPROC also counts the threads of this program, which has most of the
		// threads it needs.
		r.UserProcesses = max(limit-min(uint64(cfg.ReservedProcesses), limit/4), 1)
	}
	return r
}

// maxRetainedTotal is the largest default of retained_output_bytes_total.
const maxRetainedTotal = 2 << 30

// retainedTotal returns retained_output_bytes_total. The default is a quarter of the
// memory that this program may use, and at least what two processes need; processes
// and the page cache share that memory.
func retainedTotal(cfg config.Config, system syslimit.System) int64 {
	if cfg.RetainedTotal != 0 {
		return int64(cfg.RetainedTotal)
	}
	total := int64(maxRetainedTotal)
	if memory, _ := system.Memory(); memory > 0 {
		total = min(total, int64(memory/4))
	}
	const snapshots = 4 // head and tail of two streams
	return max(total, 2*(int64(cfg.RetainedOutput)+snapshots*int64(cfg.Snapshot)))
}
