package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// findInit finds the init of the namespace of the program that a leader stands for. What the program used is what its
// init waited for, and the leader, which does not wait for the init, knows nothing of it. Kernels that do not list
// children have none.
func findInit(leader int) (procStat, bool) {
	text, err := readChildren(leader)
	if err != nil {
		return procStat{}, false
	}
	pid, err := strconv.Atoi(text)
	if err != nil {
		return procStat{}, false
	}
	found, err := readStat(pid)
	return found, err == nil && found.ppid == leader
}

// readChildren reads the numbers of a process's children, blanks between them.
func readChildren(pid int) (string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	return string(bytes.TrimSpace(text)), err
}

// initPatience bounds how long the end of an init is waited for that nobody keeps from ending: the machine may have much
// else to do.
const initPatience = time.Second

// addUsage adds what an init waited for to the record of the leader, which is dead, as far as that can be known: all of
// it if the init is dead, too, and a child of this program that was not reaped yet; without the resident set while it
// waits for others. It takes a moment. Such a dead init is reaped: the kernel has ended all that was in its namespace
// before, so nobody can be left whom its zombie would remind of, and without it the process closes without a look at all
// processes.
func (r *ExitRecord) addUsage(init procStat) {
	if left, err := readChildren(init.pid); err == nil && left == "" { // then it is about to end
		if fd, err := openExactly(init); err == nil {
			awaitDeath(fd, initPatience)
			_ = unix.Close(fd)
		}
	}
	var usage unix.Rusage
	var info unix.Siginfo
	now, user, system := readTimes(init.pid)
	if now.identity() != init.identity() {
		return
	}
	for {
		err := unix.Waitid(unix.P_PID, init.pid, &info, unix.WEXITED|unix.WNOHANG, &usage)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if info.Signo != 0 {
		r.UserTime += time.Duration(usage.Utime.Nano())
		r.SystemTime += time.Duration(usage.Stime.Nano())
		r.MaxRSSBytes = max(r.MaxRSSBytes, largestAbove(usage.Maxrss)<<10)
		return
	}
	r.UserTime += user
	r.SystemTime += system
}

// readTimes reads the times of those whom a process has waited for, in ticks as long as others.
func readTimes(pid int) (p procStat, user, system time.Duration) {
	const statChildrenUser = 13 // and the next: see parseStat
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return p, 0, 0
	}
	p, ok := parseStat(text)
	if !ok {
		return procStat{}, 0, 0
	}
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	ticks := func(i int) time.Duration {
		n, _ := strconv.ParseInt(string(fields[i]), 10, 64) // the kernel writes numbers
		return time.Duration(n) * tickNanos
	}
	return p, ticks(statChildrenUser), ticks(statChildrenUser + 1)
}

// endedBy tells the signal that ended a program, also if the one who stands for it has made a code of it.
func (p *Process) endedBy(record ExitRecord) syscall.Signal {
	if p.isStoodFor() && record.Signal == 0 && record.Code > 128 {
		return syscall.Signal(record.Code - 128)
	}
	return record.Signal
}

// cpuSpent is the processor time of the process as its limit counts it. Of a program that another stands for it is only
// known what was scaled to the exact time, which can be a good deal less; but nobody else is known to have killed it.
func (p *Process) cpuSpent(record ExitRecord) time.Duration {
	if !p.isStoodFor() {
		return cpuTicks(p.pid)
	}
	spent := record.UserTime + record.SystemTime
	return spent + spent/2
}
