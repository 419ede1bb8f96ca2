package integration

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// being is a process for good: numbers are used again.
type being struct {
	pid   int
	start string // when it was forked, in ticks since boot
}

// kinship is what the kernel says about a process.
type kinship struct {
	being
	parent, session int
	name            string
	dead            bool // a zombie
}

func parseKinship(stat []byte) (k kinship, ok bool) {
	open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if open < 0 || end < open {
		return k, false
	}
	fields := strings.Fields(string(stat[end+1:]))
	if len(fields) < 20 {
		return k, false
	}
	k.pid, _ = strconv.Atoi(strings.TrimSpace(string(stat[:open])))
	k.parent, _ = strconv.Atoi(fields[1])
	k.session, _ = strconv.Atoi(fields[3])
	k.name, k.start, k.dead = string(stat[open+1:end]), fields[19], fields[0] == "Z"
	return k, true
}

func everybody() (all []kinship) {
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		if k, ok := parseKinship(stat); ok {
			all = append(all, k)
		}
	}
	return all
}

// alive tells whether it is, and not a zombie.
func (b being) alive() bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(b.pid) + "/stat")
	if err != nil {
		return false
	}
	k, ok := parseKinship(stat)
	return ok && k.being == b && !k.dead
}

// descendants lists those below a process who are alive.
func descendants(pid int) (found []kinship) {
	children := map[int][]kinship{}
	for _, k := range everybody() {
		children[k.parent] = append(children[k.parent], k)
	}
	for queue := []int{pid}; len(queue) > 0; queue = queue[1:] {
		for _, k := range children[queue[0]] {
			queue = append(queue, k.pid)
			if !k.dead {
				found = append(found, k)
			}
		}
	}
	return found
}

// serverOf finds the server of a guardian: the only child in its session.
func serverOf(guardian int) (server int, guarded bool) {
	session, err := unix.Getsid(guardian)
	if err != nil {
		return 0, false
	}
	for _, k := range everybody() {
		if k.parent == guardian && k.session == session && k.name == filepath.Base(execwire) {
			return k.pid, true
		}
	}
	return 0, false
}

// serverPID is the process that serves, below its guardian.
func (c *command) serverPID(t testing.TB) int {
	t.Helper()
	server, guarded := serverOf(c.Process.Pid)
	if !guarded {
		t.Fatal("the server has no guardian")
	}
	return server
}

// killServer kills the server and leaves its guardian.
func (c *command) killServer(t testing.TB) {
	t.Helper()
	if err := unix.Kill(c.serverPID(t), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// cgroupOf is the directory that a server made for the cgroup of this process of
// its, without the part that is the process's; "" if it made none.
func cgroupOf(t testing.TB, pid int) string {
	t.Helper()
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	_, path, found := strings.Cut(string(text), "0::")
	before, after, ours := strings.Cut(path, "/execwire-")
	if !found || !ours {
		return ""
	}
	name, _, _ := strings.Cut(strings.TrimSpace(after), "/")
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); len(fields) > 2 && fields[2] == "cgroup2" {
			dir := filepath.Join(fields[1], before, "execwire-"+name)
			if _, err := os.Stat(dir); err == nil {
				return dir
			}
		}
	}
	t.Fatalf("there is no directory of the cgroup %s", path)
	return ""
}
