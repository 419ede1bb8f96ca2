package process

import (
	"os"
	"os/exec"
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
	program, work := publicCopy(t)
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
