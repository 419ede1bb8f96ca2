package main

import (
	"fmt"

	"github.com/execwire/execwire/daemon"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/syslimit"
)

// processLimit checks whether processes can take all processes and threads that the
// server may have.
func processLimit(r daemon.ProcessReserve) check {
	c := check{Check: checkProcessLimit, Works: true}
	switch {
	case r.Limit == 0:
		c.Detail = "nothing limits the server's processes and threads but the machine; it makes threads in advance"
	case r.ControlGroup > 0:
		c.Detail = fmt.Sprintf("%d processes and threads, of which processes get %d by a control group", r.Limit, r.ControlGroup)
	case r.UserProcesses > 0:
		c.Detail = fmt.Sprintf("%d processes and threads, and RLIMIT_NPROC of processes is %d", r.Limit, r.UserProcesses)
	default:
		c.Works = false
		c.Detail = fmt.Sprintf("%d processes and threads, and processes can take all: only threads that are made in advance protect the server", r.Limit)
		c.Fix = "set reserved_processes, and give the server a cgroup v2 tree with the controller pids that it may write to, as systemd does with Delegate=yes, or run it as an ordinary user with a limit (ulimit -u)"
	}
	return c
}

// littleMemory is where it gets tight.
const littleMemory = 256 << 20

// memory checks how much there is.
func (m machine) memory(cfg config.Config) check {
	most, source := syslimit.System{Root: m.root}.Memory()
	c := check{Check: checkMemoryLimit, Works: most >= littleMemory}
	kept := "a quarter of it, 2GiB at most, for output of processes"
	if cfg.RetainedTotal != 0 {
		kept = fmt.Sprintf("%v for output of processes (retained_output_bytes_total)", cfg.RetainedTotal)
	}
	c.Detail = fmt.Sprintf("%d MiB by %s; a half for the server, %s", most>>20, source, kept)
	switch {
	case most == 0:
		c.Detail, c.Fix = "the memory of this machine is unknown, so nothing is derived from it", "mount /proc, and set GOMEMLIMIT and retained_output_bytes_total"
	case !c.Works:
		c.Fix = "few processes can run at once: give the control group 256 MiB or more, or lower retained_output_bytes_per_process"
	}
	return c
}

// oomScore checks who is killed when there is no memory left.
func oomScore(cfg config.Config) check {
	c := check{Check: checkOOMScore, Works: cfg.OOMScoreAdjust > 0, Detail: fmt.Sprintf("processes have %d more than the server, up to 1000", cfg.OOMScoreAdjust)}
	if !c.Works {
		c.Detail, c.Fix = "the kernel may kill the server and not the process that takes the memory", "set oom_score_adjust, to 1000 perhaps"
	}
	return c
}
