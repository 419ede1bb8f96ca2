package integration

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// clockTick is the unit of the CPU times in /proc, the same on every Linux that
// Go runs on.
const clockTick = 10 * time.Millisecond

// benchProcess reads what the kernel says about a process.
type benchProcess struct {
	tb  testing.TB
	pid int
}

// cpu is the user and system time so far, of threads that have ended too, of
// children not. It moves in steps of clockTick.
func (p benchProcess) cpu() time.Duration {
	p.tb.Helper()
	stat := p.read("stat")
	// The name, in parentheses, may contain anything; 11 fields lie between it
	// and the times.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	var ticks int64
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			p.tb.Fatalf("failed to parse the CPU times of process %d: %v", p.pid, err)
		}
		ticks += n
	}
	return time.Duration(ticks) * clockTick
}

// resident is the memory in use, in bytes.
func (p benchProcess) resident() int64 {
	p.tb.Helper()
	return p.memory("Rss")
}

// peak is the most that was in use so far, in bytes.
func (p benchProcess) peak() int64 {
	p.tb.Helper()
	for line := range strings.Lines(string(p.read("status"))) {
		var kib int64
		if n, _ := fmt.Sscanf(line, "VmHWM: %d kB", &kib); n == 1 {
			return kib << 10
		}
	}
	p.tb.Fatalf("the kernel does not say how much memory process %d used", p.pid)
	return 0
}

// share is that of resident, with what several processes use counted in parts.
func (p benchProcess) share() int64 {
	p.tb.Helper()
	return p.memory("Pss")
}

func (p benchProcess) memory(figure string) int64 {
	p.tb.Helper()
	for line := range strings.Lines(string(p.read("smaps_rollup"))) {
		var kib int64
		if n, _ := fmt.Sscanf(line, figure+": %d kB", &kib); n == 1 {
			return kib << 10
		}
	}
	p.tb.Fatalf("the kernel does not say how much memory process %d uses", p.pid)
	return 0
}

// descriptors is the number of open descriptors.
func (p benchProcess) descriptors() int {
	p.tb.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.pid))
	if err != nil {
		p.tb.Fatal(err)
	}
	return len(entries)
}

func (p benchProcess) read(name string) []byte {
	p.tb.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", p.pid, name))
	if err != nil {
		p.tb.Fatal(err)
	}
	return data
}
