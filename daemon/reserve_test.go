package daemon_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/execwire/execwire/daemon"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/syslimit"
)

// systemWith returns a system with 24 GiB of memory and a limit for this program.
func systemWith(t *testing.T, limit string) syslimit.System {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{
		"proc/meminfo":             "MemTotal:       25165824 kB\n",
		"proc/self/cgroup":         "0::/\n",
		"proc/self/mountinfo":      "30 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
		"sys/fs/cgroup/memory.max": limit + "\n",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return syslimit.System{Root: root}
}

func TestRetainedTotal_IsAQuarterOfTheMemory(t *testing.T) {
	const mib = 1 << 20
	for limit, want := range map[string]int64{
		"max": 2048 * mib, "536870912": 128 * mib, "268435456": 64 * mib, "67108864": 16 * mib,
		"1048576": 2*mib + 8*64<<10, // the minimum for two processes
	} {
		if got := daemon.RetainedTotal(config.Default(), systemWith(t, limit)); got != want {
			t.Errorf("with a limit of %s: %d, want %d", limit, got, want)
		}
	}
	cfg := config.Default()
	cfg.RetainedTotal = 77 * mib
	if got := daemon.RetainedTotal(cfg, systemWith(t, "67108864")); got != 77*mib {
		t.Errorf("a setting of 77MiB has become %d", got)
	}
}
