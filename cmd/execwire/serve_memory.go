package main

import (
	"fmt"
	"os"
	"runtime/debug"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/syslimit"
)

const (
	// collectorSlack is how much garbage may accumulate in addition to the size of the
	// live heap. The live heap of a server is mostly a few MiB, and would be collected
	// for every 4 MiB of output: that took a quarter of the CPU time of the server.
	collectorSlack = 32 << 20
	// trimInterval is how long after a change memory is returned to the system. A trim
	// takes some milliseconds of CPU time.
	trimInterval = 2 * time.Second
)

// memory keeps an idle server as small as after its start: the runtime does not collect
// while nothing is allocated, so evicted output would stay for minutes. It does nothing
// while nothing changes.
type memory struct {
	slack   []byte      // never touched: address space without memory
	trim    func()      // collects, and returns free memory to the system
	pending atomic.Bool // whether a trim follows
}

// memoryVariable is the memory limit of the runtime.
const memoryVariable = "GOMEMLIMIT"

// tuneMemory configures the collector. Unless the environment sets a limit, this
// program gets half of the memory available to it and its processes.
func tuneMemory() *memory {
	slack := int64(collectorSlack)
	if most, _ := (syslimit.System{}).Memory(); most > 0 {
		limit, less := memoryShare(most)
		if slack = less; os.Getenv(memoryVariable) == "" {
			debug.SetMemoryLimit(limit)
		}
	}
	return &memory{slack: make([]byte, slack), trim: debug.FreeOSMemory}
}

// memoryShare returns the memory limit of the runtime and the size of the slack, which
// counts towards the limit without using memory.
func memoryShare(most uint64) (limit, slack int64) {
	slack = min(collectorSlack, int64(most/16))
	return int64(most/2) + slack, slack
}

// changed records that there may be garbage. It never blocks and may be called
// concurrently.
func (m *memory) changed() {
	if m.pending.CompareAndSwap(false, true) {
		time.AfterFunc(trimInterval, func() {
			m.pending.Store(false)
			m.trim()
		})
	}
}

// protectMemory protects the memory and environment of this program from other programs
// of its user, including the processes that it starts: they cannot read it through
// /proc or trace it, and there are no core dumps. Those of root can.
func protectMemory() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("failed to protect the memory of this program: %w", err)
	}
	return nil
}
