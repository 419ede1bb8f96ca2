package operations

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/execwire/execwire/integration/harness"
	"github.com/execwire/execwire/internal/cgroup"
	"github.com/execwire/execwire/internal/procfs"
)

// alive reports whether a process exists and is no zombie.
func stillAlive(b harness.ProcessIdentity) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(b.Pid) + "/stat")
	if err != nil {
		return false
	}
	k, ok := harness.ParseStat(stat)
	return ok && k.ProcessIdentity == b && !k.Dead
}

// isStopped reports whether all threads of a process are stopped, which a signal does one by one.
func isStopped(pid int) bool {
	threads, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/status")
	return len(threads) > 0 && !slices.ContainsFunc(threads, func(thread string) bool {
		status, _ := os.ReadFile(thread)
		return !strings.Contains(string(status), "\nState:\tT")
	})
}

// cgroupOf returns the directory of the server's cgroups, from the cgroup of one of its
// processes; "" if it has none.
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

// newCgroupTree makes a directory for the control groups of servers, into which servers of other
// tests do not look; "" without a writable cgroup v2 tree.
func newCgroupTree(t *testing.T) string {
	t.Helper()
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		fields := strings.Fields(line)
		if len(fields) < 3 || fields[2] != "cgroup2" {
			continue
		}
		dir, err := os.MkdirTemp(filepath.Join(fields[1], procfs.ParseCgroup(own)), "test-")
		if err != nil {
			continue
		}
		t.Cleanup(func() {
			harness.Eventually(t, "the control groups are removed", func() bool {
				_ = cgroup.RemoveStale(dir) // of the last server
				return os.Remove(dir) == nil
			})
		})
		return dir
	}
	return ""
}
