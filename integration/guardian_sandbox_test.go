package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// What a killed server had confined ends as all the rest does, hostile or not.
func TestAKilledServerLeavesNothingConfined(t *testing.T) {
	for _, backend := range []string{"bubblewrap", "landlock"} {
		withAndWithoutCgroups(t, func(t *testing.T, setting string) {
			server := serve(t, setting, "EXECWIRE_SANDBOX_BACKENDS="+backend)
			dir, err := filepath.EvalSymlinks(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			report := filepath.Join(dir, "report")
			argv := program("hostile", append([]string{"-hold", "-chain", "1h", "-report", report}, hostileWays...)...)
			response, err := remote(t, server, unixDoor).StartProcess(testContext(t), &execwirev1.StartProcessRequest{
				Command: &execwirev1.ProcessCommand{Command: &execwirev1.ProcessCommand_Direct{Direct: &execwirev1.DirectCommand{
					Argv: argv, WorkingDirectory: "/", Env: environment(), Sandbox: writableAlone(dir)}}}})
			if err != nil {
				t.Fatal(err)
			}
			if by := response.GetProcess().GetSandbox().GetBackend().String(); !strings.HasSuffix(by, strings.ToUpper(backend)) {
				t.Errorf("it is confined by %s, want %s", by, backend)
			}
			eventually(t, "the hostile ones are in place", func() bool {
				said, _ := os.ReadFile(report)
				return strings.Count(string(said), "settled ") >= len(hostileWays)
			})
			server.killServer(t)
			if code := server.await(t); code != 128+9 {
				t.Errorf("the guardian ended with %d: %s", code, server.errors.String())
			}
			if left := runningWith(t, report); len(left) > 0 {
				t.Errorf("%v are alive", left)
			}
		})
	}
}

// writableAlone lets everything be read, and one directory be written.
func writableAlone(dir string) *execwirev1.SandboxPolicy {
	return &execwirev1.SandboxPolicy{Policy: &execwirev1.SandboxPolicy_Managed{Managed: &execwirev1.ManagedSandbox{
		FileSystem: &execwirev1.FileSystemPolicy{Policy: &execwirev1.FileSystemPolicy_Restricted{Restricted: &execwirev1.RestrictedFileSystem{
			Entries: []*execwirev1.SandboxEntry{
				{Access: execwirev1.SandboxAccess_SANDBOX_ACCESS_READ, Place: &execwirev1.SandboxEntry_Special{
					Special: &execwirev1.SpecialPath{Kind: execwirev1.SpecialPathKind_SPECIAL_PATH_KIND_ROOT}}},
				{Access: execwirev1.SandboxAccess_SANDBOX_ACCESS_WRITE, Place: &execwirev1.SandboxEntry_Path{Path: dir}},
			}}}}}}}
}

// runningWith lists the processes with a text in their command line, zombies not
// among them: those have none.
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
