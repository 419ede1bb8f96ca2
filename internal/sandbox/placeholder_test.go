package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/execwire/execwire/internal/testproc"
)

// TestPlaceholder_InAnUnwritableDirectory has writable directories in which this user
// may not create files, but whose mode it could change, as a program would.
func TestPlaceholder_InAnUnwritableDirectory(t *testing.T) {
	dir := t.TempDir()
	letPass(t, dir)
	program := filepath.Join(dir, "program")
	copyProgram(t, program, 0o755)
	for _, test := range []struct {
		name, script string
		owner        int
		mode         os.FileMode
		want         string
	}{
		{"of this user", "chmod 755 .; mkdir .git; true", nobody, 0o555, "a placeholder cannot be created"},
		{"of root", "chmod 755 .; mkdir .git; true", 0, 0o755, "nothing was made"},
		{"writable", "chmod 755 .; mkdir .git; true", nobody, 0o755, "nothing was made"},
	} {
		t.Run(test.name, func(t *testing.T) {
			work := filepath.Join(dir, strings.ReplaceAll(test.name, " ", "-"))
			if err := errors.Join(os.Mkdir(work, 0o700), os.Chmod(work, test.mode), os.Chown(work, test.owner, test.owner)); err != nil {
				t.Fatal(err)
			}
			argv := testproc.Argv("sandbox-protect", work, test.script)
			command := exec.CommandContext(t.Context(), program, argv[1:]...)
			command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
			command.Env = []string{promptExit, "PATH=" + os.Getenv("PATH")}
			command.Stderr = os.Stderr
			output, err := command.Output()
			if err != nil || !strings.Contains(string(output), test.want) {
				t.Errorf("%v: %s, want %s", err, output, test.want)
			}
		})
	}
}

func init() {
	testproc.Register("sandbox-protect", func(args []string) int {
		fmt.Print(protectAgainst(args[0], args[1]))
		return 0
	})
}

// protectAgainst runs a script in a workspace, and returns its effect.
func protectAgainst(work, script string) error {
	sandboxes := New(Options{Without: []Backend{Landlock}})
	defer sandboxes.Close()
	policy := Policy{WorkspaceRoots: []string{work}, Entries: []Entry{
		{Special: SpecialRoot, Access: AccessRead}, {Special: SpecialProjectRoots, Access: AccessWrite}}}
	plan, err := policy.Resolve(context.Background(), ResolveOptions{})
	if err != nil {
		return err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	program, fd := shell(script), int(null.Fd())
	program.Dir, program.Files, program.Terminal = work, []int{fd, fd, fd}, -1
	pid, release, err := launchProgram(program, sandboxes, plan)
	if err != nil {
		return err
	}
	reap(pid)
	release()
	if _, err := os.Lstat(work + "/.git"); err == nil {
		return errors.New("it was made")
	}
	return errors.New("nothing was made")
}
