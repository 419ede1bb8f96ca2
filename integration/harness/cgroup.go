package harness

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// WithAndWithoutCgroups runs a test with a control group for each process, and without.
func WithAndWithoutCgroups(t *testing.T, test func(t *testing.T, setting string)) {
	for _, cgroup := range []string{"auto", "off"} {
		t.Run("cgroup "+cgroup, func(t *testing.T) { test(t, "EXECWIRE_CGROUP="+cgroup) })
	}
}

// NewTestGroup makes a control group for a controller, below that of the test, and sets
// those settings that it has. It returns its directory.
func NewTestGroup(t *testing.T, controller string, settings map[string]string) string {
	t.Helper()
	dir, err := os.MkdirTemp(ownGroup(t, controller), "execwire-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		Eventually(t, "the control group is empty", func() bool {
			err := os.Remove(dir)
			return err == nil || errors.Is(err, os.ErrNotExist)
		})
	})
	set := 0
	for name, value := range settings {
		file := filepath.Join(dir, name)
		if _, err := os.Stat(file); err != nil {
			continue // of the other version of control groups
		}
		if err := os.WriteFile(file, []byte(value), 0); err != nil {
			t.Fatal(err)
		}
		set++
	}
	if set == 0 {
		t.Fatalf("%s has none of %v: the controller %s is not enabled there", dir, settings, controller)
	}
	return dir
}

// ownGroup returns the directory of the control group of this test that has a controller: in
// cgroup v1 if the controller is there, else the root of cgroup v2.
func ownGroup(t *testing.T, controller string) string {
	t.Helper()
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) == 3 && fields[1] == controller {
			return filepath.Join("/sys/fs/cgroup", controller, fields[2])
		}
	}
	return "/sys/fs/cgroup"
}
