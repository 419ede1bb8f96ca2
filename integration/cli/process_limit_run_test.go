package cli

import (
	"fmt"
	"github.com/execwire/execwire/integration/harness"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// namesProcesses matches errors about missing processes or threads: those of execwire, of the
// Go runtime, or of the C library if the program cannot start.
var namesProcesses = regexp.MustCompile(`pids\.max|ulimit -u|pthread_create failed: Resource temporarily unavailable|RLIMIT_NPROC`)

// At every limit of processes and threads a run with an embedded server and a guardian ends
// with the command's result or an error that names the limit. It leaves no process.
func TestRun_AtTheLimitOfProcesses_EndsWithAClearErrorAndLeavesNothing(t *testing.T) {
	harness.Slow(t)
	const user = 61150 // of this test alone: the limit counts the processes of other packages' tests, too
	binary := filepath.Join(harness.PublicDir(t), "execwire")
	harness.CopyFile(t, harness.Execwire, binary)
	for _, limit := range []string{"pids.max", "RLIMIT_NPROC"} {
		t.Run(limit, func(t *testing.T) {
			clear := 0
			for _, most := range []int{4, 6, 8, 10, 12, 14, 16, 18, 20, 24, 300} {
				inGroup, ofUser := 400, most
				if limit == "pids.max" {
					inGroup, ofUser = most, 400
				}
				group := harness.NewTestGroup(t, "pids", map[string]string{"pids.max": strconv.Itoa(inGroup)})
				script := fmt.Sprintf(`echo $$ > %s/cgroup.procs && ulimit -u %d && exec setpriv --reuid=%d --regid=%[3]d --clear-groups "$0" run -- /bin/echo ran`, group, ofUser, user)
				c := harness.Prepare(exec.Command("/bin/bash", "-c", script, binary))
				var out strings.Builder
				c.Stdout = &out
				c.Launch(t)
				code := c.Await(t)
				said := c.Errors.String()
				switch {
				case code == 0 && out.String() == "ran\n":
				case most == 300:
					t.Errorf("with %d: exit code %d, %q, %q", most, code, out.String(), said)
				case code == 0 || !namesProcesses.MatchString(said):
					t.Errorf("with %d: exit code %d, %q, want an error that names the limit: %q", most, code, out.String(), said)
				case strings.HasPrefix(said, "execwire: "):
					clear++
				}
				if left, err := os.ReadFile(filepath.Join(group, "cgroup.procs")); err != nil || len(left) > 0 {
					t.Errorf("with %d: processes are left: %q, %v", most, left, err)
				}
			}
			if clear == 0 {
				t.Error("no error was one of execwire's own")
			}
		})
	}
}
