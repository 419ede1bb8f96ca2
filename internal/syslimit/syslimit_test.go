package syslimit_test

import (
	"os"
	"path/filepath"
	"runtime/pprof"
	"testing"

	"github.com/execwire/execwire/internal/syslimit"
)

// fakeSystem creates a System with the given files.
func fakeSystem(t *testing.T, files map[string]string) syslimit.System {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return syslimit.System{Root: root}
}

const (
	mib      = 1 << 20
	mountV2  = "30 23 0:28 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw"
	mountsV1 = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n" +
		"39 31 0:36 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids"
	infoOf8GiB = "MemTotal:        8388608 kB\nMemFree: 1 kB"
)

func TestMemory_IsTheLowestLimit(t *testing.T) {
	for name, tc := range map[string]struct {
		files map[string]string
		want  uint64
	}{
		"machine": {map[string]string{"proc/meminfo": infoOf8GiB}, 8192 * mib},
		"v2, own": {map[string]string{
			"proc/meminfo": infoOf8GiB, "proc/self/cgroup": "0::/a/b", "proc/self/mountinfo": mountV2,
			"sys/fs/cgroup/a/memory.max": "max", "sys/fs/cgroup/a/b/memory.max": "67108864",
		}, 64 * mib},
		"v2, of a parent": {map[string]string{
			"proc/meminfo": infoOf8GiB, "proc/self/cgroup": "0::/a/b", "proc/self/mountinfo": mountV2,
			"sys/fs/cgroup/a/memory.max": "33554432", "sys/fs/cgroup/a/b/memory.max": "67108864",
		}, 32 * mib},
		"v2, container with the name of the host": {map[string]string{
			"proc/meminfo": infoOf8GiB, "proc/self/cgroup": "0::/docker/1234",
			"proc/self/mountinfo":      "30 23 0:28 /docker/1234 /sys/fs/cgroup ro - cgroup2 cgroup rw",
			"sys/fs/cgroup/memory.max": "268435456",
		}, 256 * mib},
		"v1": {map[string]string{
			"proc/meminfo": infoOf8GiB, "proc/self/cgroup": "8:pids:/\n4:memory:/x/y\n0::/", "proc/self/mountinfo": mountsV1,
			"sys/fs/cgroup/memory/memory.limit_in_bytes":     "9223372036854771712",
			"sys/fs/cgroup/memory/x/memory.limit_in_bytes":   "536870912",
			"sys/fs/cgroup/memory/x/y/memory.limit_in_bytes": "9223372036854771712",
		}, 512 * mib},
		"more than the machine has": {map[string]string{
			"proc/meminfo": infoOf8GiB, "proc/self/cgroup": "0::/", "proc/self/mountinfo": mountV2, "sys/fs/cgroup/memory.max": "1099511627776",
		}, 8192 * mib},
		"nothing": {nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if got, source := fakeSystem(t, tc.files).Memory(); got != tc.want {
				t.Errorf("Memory = %d of %q, want %d", got, source, tc.want)
			}
		})
	}
}

func TestGroupProcesses_IsTheLowestLimit(t *testing.T) {
	s := fakeSystem(t, map[string]string{
		"proc/self/cgroup": "8:pids:/x\n0::/", "proc/self/mountinfo": mountsV1, "sys/fs/cgroup/pids/x/pids.max": "150",
	})
	if limit, source, limited := s.GroupProcesses(); limit != 150 || !limited {
		t.Errorf("GroupProcesses = %d of %q, %v, want 150", limit, source, limited)
	}
	s = fakeSystem(t, map[string]string{"proc/self/cgroup": "0::/x", "proc/self/mountinfo": mountV2, "sys/fs/cgroup/x/pids.max": "max"})
	if limit, source, limited := s.GroupProcesses(); limited {
		t.Errorf("GroupProcesses = %d of %q, want no limit", limit, source)
	}
}

func TestMakeThreads_RuntimeHasThem(t *testing.T) {
	const n = 40
	syslimit.MakeThreads(n)
	created := pprof.Lookup("threadcreate")
	before := created.Count()
	if before < n {
		t.Errorf("the runtime has %d threads, want %d", before, n)
	}
	syslimit.MakeThreads(n) // uses those that there are; the runtime makes some for itself meanwhile
	if after := created.Count(); after >= before+n/2 {
		t.Errorf("the runtime has %d threads after another %d were asked for, want about %d still", after, n, before)
	}
}
