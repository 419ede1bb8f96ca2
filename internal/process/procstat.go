package process

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// procStat is what /proc/PID/stat says of a process that tells whose it is.
type procStat struct {
	pid, ppid, group, session int
	dead                      bool   // a zombie, all its threads
	start                     uint64 // when it was forked, in ticks since boot
}

// identity names one process for good: numbers are reused, but not within the same tick.
type identity struct {
	pid   int
	start uint64
}

func (p procStat) identity() identity { return identity{p.pid, p.start} }

// tickNanos is the unit of times in /proc: USER_HZ is 100 wherever Go runs.
const tickNanos = 10_000_000

// ticksNow is the time since boot in ticks, rounded down as the kernel does it. 0 if the clock cannot be read, which is
// before anything.
func ticksNow() uint64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return 0
	}
	return uint64(now.Nano()) / tickNanos
}

// Positions in /proc/PID/stat after the command's name.
const (
	statState   = 0
	statPPID    = 1
	statGroup   = 2
	statSession = 3
	statThreads = 17
	statStart   = 19
)

// parseStat reads /proc/PID/stat. The command's name is in parentheses and may contain anything, parentheses and
// newlines too: what follows begins after the last one.
func parseStat(text []byte) (p procStat, ok bool) {
	open, end := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if open < 0 || end < open {
		return p, false
	}
	fields := bytes.Fields(text[end+1:])
	if len(fields) <= statStart || len(fields[statState]) != 1 {
		return p, false
	}
	number := func(field []byte) int {
		n, err := strconv.Atoi(string(field))
		ok = ok && err == nil
		return n
	}
	ok = true
	p.pid = number(bytes.TrimSpace(text[:open]))
	p.ppid, p.group, p.session = number(fields[statPPID]), number(fields[statGroup]), number(fields[statSession])
	// A process whose first thread has ended looks like a zombie while others run.
	threads, state := number(fields[statThreads]), fields[statState][0]
	p.dead = (state == 'Z' || state == 'X') && threads <= 1
	start, err := strconv.ParseUint(string(fields[statStart]), 10, 64)
	p.start = start
	return p, ok && err == nil
}

// readStat returns what is known of a process. It fails with ESRCH if there is none, or none to be seen, and otherwise
// with what keeps this program from looking, such as that it may open no more files.
func readStat(pid int) (procStat, error) {
	return readStatFile("/proc/"+strconv.Itoa(pid)+"/stat", make([]byte, 1024))
}

func readStatFile(path string, buf []byte) (procStat, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return procStat{}, unseen(err)
	}
	defer unix.Close(fd)
	n, err := readOnce(uintptr(fd), buf)
	if err != nil {
		return procStat{}, unseen(err)
	}
	if p, ok := parseStat(buf[:n]); ok {
		return p, nil
	}
	return procStat{}, unix.ESRCH
}

// unseen makes ESRCH of the errors that say that a process is gone or hidden.
func unseen(err error) error {
	for _, errno := range []error{unix.ENOENT, unix.ESRCH, unix.EACCES, unix.EPERM} {
		if errors.Is(err, errno) {
			return unix.ESRCH
		}
	}
	return err
}

// readProcs lists all processes that can be seen. It takes a while, and some end or begin meanwhile. Rather than leave
// out one that it could not look at, it fails: who is not on the list counts as dead.
func readProcs() ([]procStat, error) {
	if err := checkProc("/proc"); err != nil {
		return nil, err
	}
	proc, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer proc.Close()
	names, err := proc.Readdirnames(-1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	procs := make([]procStat, 0, len(names))
	buf := make([]byte, 1024)
	for _, name := range names {
		if name[0] < '1' || name[0] > '9' {
			continue
		}
		p, err := readStatFile("/proc/"+name+"/stat", buf)
		switch {
		case err == nil:
			procs = append(procs, p)
		case !errors.Is(err, unix.ESRCH):
			return nil, fmt.Errorf("failed to list processes: %w", err)
		}
	}
	if len(procs) == 0 {
		return nil, fmt.Errorf("failed to list processes: /proc shows none")
	}
	return procs, nil
}

// checkProc makes sure that /proc has this program's pid namespace: the numbers of another are those of others.
func checkProc(proc string) error {
	self, err := os.Readlink(proc + "/self")
	switch {
	case err != nil:
		return fmt.Errorf("failed to list processes: %w; mount /proc", err)
	case self != strconv.Itoa(os.Getpid()):
		return fmt.Errorf("failed to list processes: %s is that of another pid namespace; mount this one's", proc)
	}
	return nil
}

// fileID names an open pipe or terminal.
type fileID struct {
	terminal bool
	number   uint64 // the inode of a pipe, or N of /dev/pts/N
}

// identifyFile names a pipe, or a terminal by its slave.
func identifyFile(fd int) (fileID, bool) {
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return fileID{}, false
	}
	if stat.Mode&unix.S_IFMT == unix.S_IFCHR {
		return fileID{terminal: true, number: uint64(unix.Minor(stat.Rdev))}, true
	}
	return fileID{number: stat.Ino}, true
}

// parseFileID understands what /proc/PID/fd/N links to, if it is a pipe or a terminal. The file itself is not touched:
// it may be on a file system that does not answer.
func parseFileID(target string) (id fileID, ok bool) {
	digits, isPipe := strings.CutPrefix(target, "pipe:[")
	if isPipe {
		digits, isPipe = strings.CutSuffix(digits, "]")
	} else {
		digits, id.terminal = strings.CutPrefix(target, "/dev/pts/")
	}
	number, err := strconv.ParseUint(digits, 10, 64)
	id.number = number
	return id, err == nil && (isPipe || id.terminal)
}

// evidence is what an orphan has about it that says where it comes from.
type evidence struct {
	cgroup  string   // "" if there is none to be seen
	streams []fileID // its descriptors 0, 1 and 2
}

func readEvidence(pid int) (e evidence) {
	dir := "/proc/" + strconv.Itoa(pid)
	if text, err := os.ReadFile(dir + "/cgroup"); err == nil {
		e.cgroup = parseCgroup(text)
	}
	for fd := range 3 {
		target, _ := os.Readlink(dir + "/fd/" + strconv.Itoa(fd))
		if id, ok := parseFileID(target); ok {
			e.streams = append(e.streams, id)
		}
	}
	return e
}

// parseCgroup finds the cgroup v2 in /proc/PID/cgroup, as a path from the root of the namespace.
func parseCgroup(text []byte) string {
	for line := range bytes.Lines(text) {
		if path, ok := bytes.CutPrefix(bytes.TrimSuffix(line, []byte("\n")), []byte("0::")); ok {
			return string(path)
		}
	}
	return ""
}
