package process

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// nobody is a user that owns nothing.
const nobody = 65534

// TestConfinedAsAnOrdinaryUser runs tests of confined processes, which are those of root here, as an ordinary user, for
// whom bubblewrap makes a user namespace with less in it, and who has no control groups.
func TestConfinedAsAnOrdinaryUser(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: runs in make test-all")
	}
	if os.Geteuid() != 0 {
		t.Fatal("run the tests as root: they have to be another user too")
	}
	dir, err := os.MkdirTemp("/var/tmp", "execwire-test-") // which others may pass
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
		"TestAConfinedProcessIsGivenWhatAnyIs", "TestAConfinedProcessReadsItsInput", "TestTheEndOfAConfinedProcessIsReported",
		"TestWhatASandboxDoesNotGrantIsRefused", "TestASandboxThatCannotBeMadeStartsNothing", "TestAConfinedProcessHasItsTerminal",
		"TestSignalsReachAConfinedProgram", "TestSignalsReachAConfinedShellWithJobs", "TestAConfinedProcessIsAskedToEnd",
		"TestNobodyConfinedSurvivesATermination", "TestWhatAConfinedProcessLeaves", "TestWhatKeepsAPlaceIsRemovedInTheEnd",
		"TestLimitsHoldInASandbox", "TestALimitThatIsTooLowForASandboxIsNamed",
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
