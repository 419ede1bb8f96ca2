package harness

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// ProcessIdentity identifies a process also after its PID was reused.
type ProcessIdentity struct {
	Pid   int
	start string // when it was forked, in ticks since boot
}

// ProcessInfo is a process as /proc shows it.
type ProcessInfo struct {
	ProcessIdentity
	parent, session int
	Name            string
	Dead            bool // a zombie
}

// ParseStat parses /proc/PID/stat.
func ParseStat(stat []byte) (k ProcessInfo, ok bool) {
	open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if open < 0 || end < open {
		return k, false
	}
	fields := strings.Fields(string(stat[end+1:]))
	if len(fields) < 20 {
		return k, false
	}
	k.Pid, _ = strconv.Atoi(strings.TrimSpace(string(stat[:open])))
	k.parent, _ = strconv.Atoi(fields[1])
	k.session, _ = strconv.Atoi(fields[3])
	k.Name, k.start, k.Dead = string(stat[open+1:end]), fields[19], fields[0] == "Z"
	return k, true
}

// ListProcesses returns all processes of the machine.
func ListProcesses() (all []ProcessInfo) {
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		if k, ok := ParseStat(stat); ok {
			all = append(all, k)
		}
	}
	return all
}

// Descendants returns the live descendants of a process.
func Descendants(pid int) (found []ProcessInfo) {
	children := map[int][]ProcessInfo{}
	for _, k := range ListProcesses() {
		children[k.parent] = append(children[k.parent], k)
	}
	for queue := []int{pid}; len(queue) > 0; queue = queue[1:] {
		for _, k := range children[queue[0]] {
			queue = append(queue, k.Pid)
			if !k.Dead {
				found = append(found, k)
			}
		}
	}
	return found
}

// ServerOf returns the server of a guardian: the only child in its session.
func ServerOf(guardian int) (server int, guarded bool) {
	session, err := unix.Getsid(guardian)
	if err != nil {
		return 0, false
	}
	for _, k := range ListProcesses() {
		if k.parent == guardian && k.session == session && k.Name == filepath.Base(Execwire) {
			return k.Pid, true
		}
	}
	return 0, false
}

// ServerPID returns the PID of the server below its guardian.
func (c *Command) ServerPID(t testing.TB) int {
	t.Helper()
	server, guarded := ServerOf(c.Process.Pid)
	if !guarded {
		t.Fatal("the server has no guardian")
	}
	return server
}

// KillServer kills the server and not its guardian.
func (c *Command) KillServer(t testing.TB) {
	t.Helper()
	if err := unix.Kill(c.ServerPID(t), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// ProcessAlive reports whether a process exists.
func ProcessAlive(pid int32) bool {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(int(pid)) + "/status")
	return err == nil && !strings.Contains(string(status), "\nState:\tZ")
}
