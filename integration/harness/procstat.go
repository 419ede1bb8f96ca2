package harness

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// ClockTick is the unit of the CPU times in /proc, the same on every Linux that
// Go runs on.
const ClockTick = 10 * time.Millisecond

// ProcStat reads the state of a process in /proc.
type ProcStat struct {
	Tb  testing.TB
	Pid int
}

// CPU returns the user and system time of all threads, also ended ones, without
// children, in steps of ClockTick.
func (p ProcStat) CPU() time.Duration {
	p.Tb.Helper()
	stat := p.read("stat")
	// The name, in parentheses, may contain anything; 11 fields lie between it
	// and the times.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	var ticks int64
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			p.Tb.Fatalf("failed to parse the CPU times of process %d: %v", p.Pid, err)
		}
		ticks += n
	}
	return time.Duration(ticks) * ClockTick
}

// Resident returns the resident memory in bytes, without the pages of files: a server gives those
// of its program back soon after its start, and gets the ones that it needs again.
func (p ProcStat) Resident() int64 {
	p.Tb.Helper()
	return p.Memory("Anonymous")
}

// Peak returns the largest resident memory so far, in bytes, with the pages of files.
func (p ProcStat) Peak() int64 {
	p.Tb.Helper()
	return p.figure("status", "VmHWM")
}

// Memory returns a figure of /proc/PID/smaps_rollup, in bytes.
func (p ProcStat) Memory(figure string) int64 {
	p.Tb.Helper()
	return p.figure("smaps_rollup", figure)
}

func (p ProcStat) figure(file, name string) int64 {
	p.Tb.Helper()
	for line := range strings.Lines(string(p.read(file))) {
		var kib int64
		if n, _ := fmt.Sscanf(line, name+": %d kB", &kib); n == 1 {
			return kib << 10
		}
	}
	p.Tb.Fatalf("/proc/%d/%s has no %s", p.Pid, file, name)
	return 0
}

// Descriptors returns the number of open descriptors, without those of the files with output of
// finished processes, which stay open for as long as the records of their processes are kept.
func (p ProcStat) Descriptors() (open int) {
	p.Tb.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", p.Pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		p.Tb.Fatal(err)
	}
	for _, e := range entries {
		target, _ := os.Readlink(filepath.Join(dir, e.Name())) // it may be closed by now
		if !strings.HasPrefix(filepath.Base(target), "execwire-output-") {
			open++
		}
	}
	return open
}

func (p ProcStat) read(name string) []byte {
	p.Tb.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", p.Pid, name))
	if err != nil {
		p.Tb.Fatal(err)
	}
	return data
}
