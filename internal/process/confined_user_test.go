package process

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/execwire/execwire/internal/testrace"
)

// nobody is the ID of a user that owns nothing.
const nobody = 65534

// TestConfined_UnprivilegedUser runs tests of confined processes as an ordinary user, for whom
// bubblewrap creates a user namespace with fewer privileges, and without control groups.
func TestConfined_UnprivilegedUser(t *testing.T) {
	testrace.Slow(t)
	if os.Geteuid() != 0 {
		t.Fatal("run the tests as root: they switch to another user")
	}
	dir, err := os.MkdirTemp("/var/tmp", "execwire-test-") // searchable by other users
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	program, work := filepath.Join(dir, "process.test"), filepath.Join(dir, "work")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(self)
	if err == nil {
		err = errors.Join(os.Chmod(dir, 0o755), os.WriteFile(program, content, 0o755), os.Mkdir(work, 0o700), os.Chown(work, nobody, nobody))
	}
	if err != nil {
		t.Fatal(err)
	}
	tests := []string{
		"TestStart_Confined_PassesArgumentsEnvironmentAndDirectory", "TestWriteStdin_Confined", "TestExitRecord_Confined",
		"TestStart_Confined_WriteOutsideIsDenied", "TestStart_SandboxSetupFails_ExecutesNothing", "TestTerminal_Confined",
		"TestSignal_Confined_ReachesProgram", "TestSignal_ConfinedShellWithJobs", "TestTerminate_ConfinedGraceful_SendsSIGTERM",
		"TestTerminate_Confined_LeavesNoDescendant", "TestLeaveDescendants_Confined", "TestClose_ConfinedPlaceholder_IsRemoved",
		"TestResourceLimits_Confined", "TestStart_LimitTooLowForSandbox_AppliesToProgramOnly",
	}
	command := exec.CommandContext(testContext(t), program, "-test.v", "-test.run", "^("+strings.Join(tests, "|")+")$")
	command.Dir, command.Env = work, append(os.Environ(), "TMPDIR="+work)
	command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v:\n%s", err, output)
	}
	for _, name := range tests {
		if !strings.Contains(string(output), "--- PASS: "+name+" ") {
			t.Errorf("%s did not pass", name)
		}
	}
}
