package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/execwire/execwire/integration/harness"
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
				}
				if left, err := os.ReadFile(filepath.Join(group, "cgroup.procs")); err != nil || len(left) > 0 {
					t.Errorf("with %d: processes are left: %q, %v", most, left, err)
				}
			}
		})
	}
}

// A server that reaches the limit after it has started refuses starts by an error that names the
// limit, and starts processes again when it can.
func TestRun_ServerAtTheLimitOfProcesses_RefusesAndRecovers(t *testing.T) {
	const user, most = 61151, 400 // a user of this test alone
	server := harness.ServeAs(t, user, most, most)
	setLimit := func(n int) {
		t.Helper()
		prlimit := exec.Command("setpriv", fmt.Sprint("--reuid=", user), fmt.Sprint("--regid=", user), "--clear-groups",
			"prlimit", fmt.Sprint("--pid=", server.ServerPID(t)), fmt.Sprintf("--nproc=%d:%d", n, most))
		if text, err := prlimit.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
	}
	run := func() harness.Result {
		return harness.Run(t, nil, "run", "--server", server.URLs[harness.TCPTransport], "--", "/bin/echo", "ran")
	}
	setLimit(1)
	if got := run(); got.Code != 125 || !strings.HasPrefix(got.Stderr, "execwire: ") || !strings.Contains(got.Stderr, "RLIMIT_NPROC") {
		t.Errorf("at the limit: %+v, want 125 and an error that names RLIMIT_NPROC", got)
	}
	setLimit(most)
	if got := run(); got.Code != 0 || got.Stdout != "ran\n" {
		t.Errorf("below the limit: %+v", got)
	}
}
