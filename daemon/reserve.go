package daemon

import (
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/process"
	"github.com/execwire/execwire/internal/syslimit"
)

// Threads that programs make in advance: the runtime ends a program that needs one when
// the system has none left.
const (
	serverThreads = 64
	passerThreads = 16 // of a gateway or a forward
)

// ProcessReserve is how processes and threads are kept for the server where the system
// limits them.
type ProcessReserve struct {
	// Limit is how many processes and threads there may be, by the control group or for
	// the user; 0 is any number.
	Limit uint64
	// ControlGroup is how many the control group of all processes may have; 0: they have
	// none, or it cannot limit them.
	ControlGroup uint64
	// UserProcesses is the RLIMIT_NPROC of processes; 0 is that of the server.
	UserProcesses uint64
}

// ProcessReserve returns what keeps processes and threads for this daemon.
func (d *Daemon) ProcessReserve() ProcessReserve { return d.reserve }

// reserveProcesses reserves a part of the processes and threads that the system lets this
// program have. Processes in control groups get the rest by a limit of those, if there is
// a controller, and otherwise by a lower RLIMIT_NPROC. Both leave at least a half to
// processes and what this program has now.
func reserveProcesses(cfg config.Config, system syslimit.System, groups *process.Cgroups) (r ProcessReserve) {
	limit, limited := system.Processes()
	if !limited {
		return r
	}
	r.Limit = limit
	if cfg.ReservedProcesses == 0 {
		return r
	}
	// This one counts processes alone.
	if most := max(limit-min(uint64(cfg.ReservedProcesses), limit/2), 1); groups.LimitProcesses(most) == nil {
		r.ControlGroup = most
		return r
	}
	if limit, limited = system.UserProcesses(); limited {
		// This one counts the threads of this program, too, which has most of those
		// that it needs.
		r.UserProcesses = max(limit-min(uint64(cfg.ReservedProcesses), limit/4), 1)
	}
	return r
}

// retainedMost is the most output that is kept of all processes unless a setting says so.
const retainedMost = 2 << 30

// retainedTotal is how much output is kept of all processes: what the setting says, or a
// quarter of the memory that this program may have, and at least what two processes need.
// Processes and files in the page cache are in the same memory.
func retainedTotal(cfg config.Config, system syslimit.System) int64 {
	if cfg.RetainedTotal != 0 {
		return int64(cfg.RetainedTotal)
	}
	total := int64(retainedMost)
	if memory, _ := system.Memory(); memory > 0 {
		total = min(total, int64(memory/4))
	}
	const snapshots = 4 // head and tail of two streams
	return max(total, 2*(int64(cfg.RetainedOutput)+snapshots*int64(cfg.Snapshot)))
}
