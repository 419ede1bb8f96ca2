package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/testproc"
)

// TestNamespaces_OrdinaryUsers_ShareAnEmptyNetwork: programs share a network namespace,
// which is not that of the machine, and each has a user namespace of its own.
func TestNamespaces_OrdinaryUsers_ShareAnEmptyNetwork(t *testing.T) {
	dir := build(t)
	letPass(t, dir)
	program := filepath.Join(dir, "program")
	copyProgram(t, program, 0o755)
	for user, as := range map[string][]string{
		"root of a container": {"--bounding-set=-sys_admin", "--inh-caps=-sys_admin"},
		"ordinary user":       {"--reuid=65534", "--regid=65534", "--clear-groups"},
	} {
		argv := append(as, program)
		command := exec.CommandContext(t.Context(), "setpriv", append(argv, testproc.Argv("sandbox-namespaces")[1:]...)...)
		command.Env = []string{promptExit, "PATH=" + os.Getenv("PATH")}
		output, err := command.CombinedOutput()
		names := strings.Fields(string(output))
		if err != nil || len(names) != 6 {
			t.Errorf("%s: %v: %s", user, err, output)
			continue
		}
		machine, first, second := names[0:2], names[2:4], names[4:6]
		if first[0] == machine[0] || first[0] != second[0] {
			t.Errorf("%s: the networks are %s and %s, that of the machine is %s", user, first[0], second[0], machine[0])
		}
		if first[1] == machine[1] || second[1] == machine[1] {
			t.Errorf("%s: the users are %s and %s, those of the machine are %s", user, first[1], second[1], machine[1])
		}
	}
}

func init() {
	testproc.Register("sandbox-namespaces", func([]string) int {
		if err := tellNamespaces(); err != nil {
			fmt.Println("failed:", err)
			return 1
		}
		return 0
	})
}

// tellNamespaces prints the namespaces of this process and of two programs.
func tellNamespaces() error {
	sandboxes := New(Options{Without: []Backend{Landlock}})
	defer sandboxes.Close()
	policy := Policy{Entries: []Entry{{Special: SpecialRoot, Access: AccessRead}}}
	plan, err := policy.Resolve(context.Background(), ResolveOptions{})
	if err != nil {
		return err
	}
	const script = "readlink /proc/self/ns/net /proc/self/ns/user"
	own, err := exec.Command("sh", "-c", script).Output()
	if err != nil {
		return err
	}
	fmt.Print(string(own))
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	for range 2 {
		ours, theirs, err := os.Pipe()
		if err != nil {
			return err
		}
		program := shell(script)
		program.Files, program.Terminal = []int{int(null.Fd()), int(theirs.Fd()), int(theirs.Fd())}, -1
		pid, release, err := launchProgram(program, sandboxes, plan)
		_ = theirs.Close()
		if err != nil {
			return errors.Join(err, ours.Close())
		}
		said, err := io.ReadAll(ours)
		reap(pid)
		release()
		shared, linkErr := os.Readlink(ownDescriptor(int(sandboxes.namespaces.users.Fd())))
		if err := errors.Join(err, linkErr, ours.Close()); err != nil {
			return err
		}
		if strings.Contains(string(said), shared) {
			return fmt.Errorf("a program is in %s, where others get power over mounts", shared)
		}
		fmt.Print(string(said))
	}
	if dumpable, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0); dumpable != 1 {
		return fmt.Errorf("the memory of this process changed hands with that of its children: dumpable is %d: %w", dumpable, err)
	}
	if _, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); !errors.Is(err, unix.ECHILD) {
		return fmt.Errorf("a child is left: %w", err)
	}
	return nil
}
