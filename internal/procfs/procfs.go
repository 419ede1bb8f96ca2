//go:build linux

// Package procfs reads /proc: which processes there are, where they come from, and what they have open.
package procfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Stat is the part of /proc/PID/stat that identifies a process and its origin.
type Stat struct {
	PID     int    // the process
	PPID    int    // the parent
	Group   int    // the process group
	Session int    // 0: the session leader is outside of this PID namespace
	Dead    bool   // a zombie, with all its threads
	Start   uint64 // ticks since boot at the fork
	// ChildrenUser and ChildrenSystem are the CPU times of the children that it waited for.
	ChildrenUser, ChildrenSystem time.Duration
}

// ID identifies one process. PIDs are reused, but not within one tick.
type ID struct {
	PID   int    // the process
	Start uint64 // as in Stat
}

// ID returns what identifies the process.
func (p Stat) ID() ID { return ID{p.PID, p.Start} }

// Tick is the unit of times in /proc: USER_HZ is 100 on all platforms of Go.
const Tick = 10 * time.Millisecond

// BootTicks returns the time since boot in ticks, rounded down as the kernel does. It returns 0,
// which precedes every fork, if the clock cannot be read.
func BootTicks() uint64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return 0
	}
	return uint64(now.Nano()) / uint64(Tick)
}

// Indices of the fields of /proc/PID/stat after the command name.
const (
	statState          = 0
	statPPID           = 1
	statGroup          = 2
	statSession        = 3
	statUser           = 11
	statSystem         = 12
	statChildrenUser   = 13
	statChildrenSystem = 14
	statThreads        = 17
	statStart          = 19
	statResident       = 21
)

// ParseStat parses /proc/PID/stat. The command name is in parentheses and may contain any
// character, also parentheses and newlines: the other fields begin after the last parenthesis.
func ParseStat(text []byte) (p Stat, ok bool) {
	open, end := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if open < 0 || end < open {
		return p, false
	}
	fields := bytes.Fields(text[end+1:])
	if len(fields) <= statStart || len(fields[statState]) != 1 {
		return p, false
	}
	ok = true
	number := func(field []byte) int {
		n, err := strconv.Atoi(string(field))
		ok = ok && err == nil
		return n
	}
	p.PID = number(bytes.TrimSpace(text[:open]))
	p.PPID, p.Group, p.Session = number(fields[statPPID]), number(fields[statGroup]), number(fields[statSession])
	p.ChildrenUser = time.Duration(number(fields[statChildrenUser])) * Tick
	p.ChildrenSystem = time.Duration(number(fields[statChildrenSystem])) * Tick
	// A process whose main thread has ended looks like a zombie while other threads run.
	threads, state := number(fields[statThreads]), fields[statState][0]
	p.Dead = (state == 'Z' || state == 'X') && threads <= 1
	p.Start = uint64(number(fields[statStart]))
	return p, ok
}

// ReadStat reads the stat of a process. It fails with ESRCH if the process does not exist or is
// hidden, and otherwise with the error of the read, such as EMFILE.
func ReadStat(pid int) (Stat, error) { return readStatFile(pid, make([]byte, 1024)) }

func readStatFile(pid int, buf []byte) (Stat, error) {
	text, err := ReadSmallFile(Dir(pid)+"/stat", buf)
	if err != nil {
		return Stat{}, missingOr(err)
	}
	if p, ok := ParseStat(text); ok {
		return p, nil
	}
	return Stat{}, unix.ESRCH
}

// Usage is what a process uses.
type Usage struct {
	CPU           time.Duration // time of the processors so far, without its children
	ResidentBytes int64         // resident memory
}

// ReadUsage reads the usage of a process; 0 is this program. The errors are those of
// [ReadStat].
func ReadUsage(pid int) (Usage, error) {
	dir := "/proc/self"
	if pid != 0 {
		dir = Dir(pid)
	}
	text, err := ReadSmallFile(dir+"/stat", make([]byte, 1024))
	if err != nil {
		return Usage{}, missingOr(err)
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) <= statResident {
		return Usage{}, unix.ESRCH
	}
	var numbers [statResident + 1]int64
	for _, i := range []int{statUser, statSystem, statResident} {
		numbers[i], _ = strconv.ParseInt(fields[i], 10, 64) // the kernel writes numbers
	}
	return Usage{CPU: time.Duration(numbers[statUser]+numbers[statSystem]) * Tick, ResidentBytes: numbers[statResident] * int64(os.Getpagesize())}, nil
}

// missingOr returns ESRCH for the error of a file of a process that does not exist or is hidden, and
// other errors unchanged.
func missingOr(err error) error {
	for _, missing := range []error{unix.ENOENT, unix.ESRCH, unix.EACCES, unix.EPERM} {
		if errors.Is(err, missing) {
			return unix.ESRCH
		}
	}
	return err
}

// Dir returns the directory of a process in /proc.
func Dir(pid int) string { return "/proc/" + strconv.Itoa(pid) }

// ReadSmallFile reads a file of a kernel file system with one read(2), as much as fits into buf. It
// does not use the poller of the runtime, which such files support.
func ReadSmallFile(path string, buf []byte) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	for {
		n, err := unix.Read(fd, buf)
		if !errors.Is(err, unix.EINTR) {
			return buf[:max(n, 0)], err
		}
	}
}

// List returns all visible processes. Some may begin or end meanwhile, but a parent that is not listed
// has ended, and so has its child. It fails if it cannot read one of them, because a process that is
// missing from the list counts as dead.
func List() ([]Stat, error) {
	if err := CheckMount("/proc"); err != nil {
		return nil, err
	}
	pids, err := ListPIDs()
	if err != nil {
		return nil, fmt.Errorf("failed to list processes: %w", err)
	}
	procs := make([]Stat, 0, len(pids))
	buf := make([]byte, 1024)
	for _, pid := range pids {
		p, err := readStatFile(pid, buf)
		switch {
		case err == nil:
			procs = append(procs, p)
		case !errors.Is(err, unix.ESRCH):
			return nil, fmt.Errorf("failed to list processes: %w", err)
		}
	}
	if len(procs) == 0 {
		return nil, errors.New("failed to list processes: /proc shows none")
	}
	updateParents(procs, func(pid int) (Stat, error) { return readStatFile(pid, buf) })
	return procs, nil
}

// updateParents reads the processes again whose parents are not listed: they have new ones.
func updateParents(procs []Stat, read func(pid int) (Stat, error)) {
	listed := make(map[int]bool, len(procs))
	for _, p := range procs {
		listed[p.PID] = true
	}
	for i, p := range procs {
		for range maxNewParents {
			if p.PPID == 0 || listed[p.PPID] {
				break
			}
			again, err := read(p.PID)
			if err != nil || again.ID() != p.ID() {
				break // it has ended
			}
			p = again
		}
		procs[i] = p
	}
}

// maxNewParents bounds how often a process is read again: each new parent may end meanwhile, too.
const maxNewParents = 3

// ListPIDs lists the PIDs of all visible processes.
func ListPIDs() ([]int, error) {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer proc.Close()
	names, err := proc.Readdirnames(-1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	pids := make([]int, 0, len(names))
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// CheckMount checks that /proc belongs to the PID namespace of this program. Otherwise its PIDs
// would mean other processes.
func CheckMount(proc string) error {
	self, err := os.Readlink(proc + "/self")
	switch {
	case err != nil:
		return fmt.Errorf("failed to list processes: %w; mount /proc", err)
	case self != strconv.Itoa(os.Getpid()):
		return fmt.Errorf("failed to list processes: %s belongs to another PID namespace; mount the one of this namespace", proc)
	}
	return nil
}

// OpenPidfd opens a pidfd of the process that p describes. It fails with ESRCH if another
// process has the PID by now.
func OpenPidfd(p Stat) (fd int, err error) {
	fd, err = unix.PidfdOpen(p.PID, 0)
	if err != nil {
		if errors.Is(err, unix.EINVAL) {
			err = unix.ESRCH // the ID of a thread
		}
		return -1, err
	}
	current, err := ReadStat(p.PID)
	if err == nil && current.Start != p.Start {
		err = unix.ESRCH
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// Children lists the children of the main thread of a process. It fails on kernels that do not
// list them.
func Children(pid int) (children []int, err error) {
	text, err := os.ReadFile(Dir(pid) + "/task/" + strconv.Itoa(pid) + "/children")
	for field := range bytes.FieldsSeq(text) {
		if child, err := strconv.Atoi(string(field)); err == nil {
			children = append(children, child)
		}
	}
	return children, err
}

// statusBytes is usually enough for /proc/PID/status.
const statusBytes = 4 << 10

// Status returns those fields of /proc/PID/status that have one of the names. It fails with ESRCH as
// [ReadStat] does.
func Status(pid int, names ...string) (map[string]string, error) {
	path := Dir(pid) + "/status"
	var buf [statusBytes]byte
	text, err := ReadSmallFile(path, buf[:])
	if err == nil && len(text) == statusBytes { // of a process in many groups, or with many CPUs
		text, err = os.ReadFile(path)
	}
	if err != nil {
		return nil, missingOr(err)
	}
	fields := make(map[string]string, len(names))
	for line := range bytes.Lines(text) {
		name, value, _ := bytes.Cut(line, []byte(":"))
		if slices.Contains(names, string(name)) {
			fields[string(name)] = string(bytes.TrimSpace(value))
		}
	}
	return fields, nil
}

// HasDescriptor reports whether a process has a descriptor with one of the link targets in
// /proc/PID/fd. It returns false for a process that is gone or may not be inspected.
func HasDescriptor(pid int, targets map[string]bool) bool {
	for target := range descriptors(pid) {
		if targets[string(target)] {
			return true
		}
	}
	return false
}

// Sockets lists the inodes of the sockets that a process has open. It lists none for a process that
// is gone or may not be inspected.
func Sockets(pid int) (inodes []uint32) {
	for target := range descriptors(pid) {
		digits, ok := bytes.CutPrefix(target, []byte("socket:["))
		if !ok {
			continue
		}
		if inode, err := strconv.ParseUint(string(bytes.TrimSuffix(digits, []byte("]"))), 10, 32); err == nil {
			inodes = append(inodes, uint32(inode))
		}
	}
	return inodes
}

// descriptors iterates over the link targets in /proc/PID/fd, cut after 64 bytes. They are valid
// until the next one.
func descriptors(pid int) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		dir, err := os.Open(Dir(pid) + "/fd")
		if err != nil {
			return
		}
		defer dir.Close()
		names, _ := dir.Readdirnames(-1)
		var buf [64]byte
		for _, name := range names {
			if n, err := unix.Readlinkat(int(dir.Fd()), name, buf[:]); err == nil && !yield(buf[:n]) {
				return
			}
		}
	}
}

// Program returns the name of the program of a process, as in /proc/PID/comm; empty if the process
// is gone.
func Program(pid int) string {
	text, err := ReadSmallFile(Dir(pid)+"/comm", make([]byte, 64))
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(string(text), "\n")
}

// FileID identifies an open pipe or terminal.
type FileID struct {
	Terminal bool   // it is a terminal, not a pipe
	Number   uint64 // the inode of a pipe, or N of /dev/pts/N
}

// IdentifyFile identifies a pipe, or the slave of a terminal.
func IdentifyFile(fd int) (FileID, bool) {
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return FileID{}, false
	}
	if stat.Mode&unix.S_IFMT == unix.S_IFCHR {
		return FileID{Terminal: true, Number: uint64(unix.Minor(stat.Rdev))}, true
	}
	return FileID{Number: stat.Ino}, true
}

// parseFileID parses the target of /proc/PID/fd/N if it is a pipe or a terminal. The file itself is
// not touched, because its file system may hang.
func parseFileID(target string) (id FileID, ok bool) {
	digits, isPipe := strings.CutPrefix(target, "pipe:[")
	if isPipe {
		digits, isPipe = strings.CutSuffix(digits, "]")
	} else {
		digits, id.Terminal = strings.CutPrefix(target, "/dev/pts/")
	}
	number, err := strconv.ParseUint(digits, 10, 64)
	id.Number = number
	return id, err == nil && (isPipe || id.Terminal)
}

// Evidence is what identifies the origin of an orphan.
type Evidence struct {
	Cgroup string   // "": not visible
	Files  []FileID // descriptors 0, 1 and 2
}

// ReadEvidence reads the evidence of a process, as far as it is visible.
func ReadEvidence(pid int) (e Evidence) {
	if text, err := os.ReadFile(Dir(pid) + "/cgroup"); err == nil {
		e.Cgroup = ParseCgroup(text)
	}
	for fd := range 3 {
		target, _ := os.Readlink(Dir(pid) + "/fd/" + strconv.Itoa(fd))
		if id, ok := parseFileID(target); ok {
			e.Files = append(e.Files, id)
		}
	}
	return e
}

// ParseCgroup returns the cgroup v2 path of /proc/PID/cgroup, relative to the root of the cgroup
// namespace.
func ParseCgroup(text []byte) string {
	for line := range bytes.Lines(text) {
		if path, ok := bytes.CutPrefix(bytes.TrimSuffix(line, []byte("\n")), []byte("0::")); ok {
			return string(path)
		}
	}
	return ""
}
