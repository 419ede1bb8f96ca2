package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/execwire/execwire/internal/syslimit"
)

const (
	// collectorSlack is how much garbage may pile up beside what is alive and as
	// much again. What is alive in a server is a few MiB, mostly, and the
	// collector would run for every 4 MiB of output that passes through: it took
	// a quarter of the server's CPU.
	collectorSlack = 32 << 20
	// trimInterval is how long after a change what it left is given back. A trim
	// takes some milliseconds of CPU.
	trimInterval = 2 * time.Second
)

// memory keeps the memory of a server that does little as small as that of one
// that did nothing yet: the runtime does not collect while nothing is allocated,
// so that output that was forgotten would stay for minutes. It costs nothing
// while nothing changes.
type memory struct {
	slack []byte // never touched, so that it takes address space and no memory
	trim  func() // collects, and gives what is free to the system

	mu      sync.Mutex
	pending *time.Timer // guarded by mu; nil: nothing changed since the last trim
	stopped bool        // guarded by mu
	trims   sync.WaitGroup
}

// memoryVariable is where the runtime reads its limit of memory.
const memoryVariable = "GOMEMLIMIT"

// keepMemory sets the collector up. Unless the environment limits it, this program gets
// half of the memory that it and its processes may have. It is to be closed.
func keepMemory() *memory {
	slack := int64(collectorSlack)
	if most, _ := (syslimit.System{}).Memory(); most > 0 {
		limit, less := memoryShare(most)
		if slack = less; os.Getenv(memoryVariable) == "" {
			debug.SetMemoryLimit(limit)
		}
	}
	return &memory{slack: make([]byte, slack), trim: debug.FreeOSMemory}
}

// memoryShare returns the limit for the runtime where there is so much memory in all, and
// how large the slack is, which counts as used there and is not.
func memoryShare(most uint64) (limit, slack int64) {
	slack = min(collectorSlack, int64(most/16))
	return int64(most/2) + slack, slack
}

// changed says that something may have become garbage. It never blocks and may
// be called concurrently.
func (m *memory) changed() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pending == nil && !m.stopped {
		m.trims.Add(1)
		m.pending = time.AfterFunc(trimInterval, m.due)
	}
}

func (m *memory) due() {
	defer m.trims.Done()
	m.mu.Lock()
	m.pending = nil
	m.mu.Unlock()
	m.trim()
}

// close gives the slack up and waits for a trim that is going on.
func (m *memory) close() {
	m.mu.Lock()
	m.stopped = true
	if m.pending != nil && m.pending.Stop() {
		m.trims.Done()
	}
	m.mu.Unlock()
	m.trims.Wait()
	runtime.KeepAlive(m.slack)
}
