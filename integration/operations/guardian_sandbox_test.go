package operations

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
)

// The confined processes of a killed server are killed too, hostile or not.
func TestKilledServer_Sandboxed_LeavesNoProcess(t *testing.T) {
	for _, backend := range []string{"bubblewrap", "landlock"} {
		harness.WithAndWithoutCgroups(t, func(t *testing.T, setting string) {
			server := harness.Serve(t, setting, "EXECWIRE_SANDBOX_BACKENDS="+backend)
			dir, err := filepath.EvalSymlinks(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			report := filepath.Join(dir, "report")
			argv := harness.Program("hostile", append([]string{"-hold", "-chain", "2m", "-report", report}, hostileWays...)...)
			response, err := harness.Remote(t, server, harness.UnixTransport).StartProcess(harness.Context(t), &execwirev1.StartProcessRequest{
				Command: &execwirev1.ProcessCommand{Command: &execwirev1.ProcessCommand_Direct{Direct: &execwirev1.DirectCommand{
					Argv: argv, WorkingDirectory: "/", Env: harness.Environment(), Sandbox: harness.OnlyWritable(dir)}}}})
			if err != nil {
				t.Fatal(err)
			}
			if by := response.GetProcess().GetSandbox().GetBackend().String(); !strings.HasSuffix(by, strings.ToUpper(backend)) {
				t.Errorf("it is confined by %s, want %s", by, backend)
			}
			harness.Eventually(t, "the hostile ones are in place", func() bool {
				said, _ := os.ReadFile(report)
				return strings.Count(string(said), "settled ") >= len(hostileWays)
			})
			server.KillServer(t)
			if code := server.Await(t); code != 128+9 {
				t.Errorf("the guardian ended with %d: %s", code, server.Errors.String())
			}
			if left := runningWith(t, report); len(left) > 0 {
				t.Errorf("%v are alive", left)
			}
		})
	}
}

// runningWith lists the processes with a text in their command line, except zombies, which have
// none.
func runningWith(t *testing.T, text string) (lines []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if line, err := os.ReadFile(file); err == nil && strings.Contains(string(line), text) {
			lines = append(lines, file+": "+strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return lines
}
