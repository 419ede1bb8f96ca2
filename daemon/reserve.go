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

// reserveProcesses reserves a part of the processes and threads that the system lets this
// program have. Processes in control groups get the rest by a limit of those, if there is
// a controller. Otherwise the result is the RLIMIT_NPROC that processes get; 0 is that of
// this program. Both leave at least a half to processes and what this program has now.
func reserveProcesses(cfg config.Config, system syslimit.System, groups *process.Cgroups) (userProcesses uint64) {
	limit, limited := system.Processes()
	if !limited || cfg.ReservedProcesses == 0 {
		return 0
	}
	// This one counts processes alone.
	if groups.LimitProcesses(max(limit-min(uint64(cfg.ReservedProcesses), limit/2), 1)) == nil {
		return 0
	}
	if limit, limited = system.UserProcesses(); limited {
		// This one counts the threads of this program, too, which has most of those
		// that it needs.
		return max(limit-min(uint64(cfg.ReservedProcesses), limit/4), 1)
	}
	return 0
}
