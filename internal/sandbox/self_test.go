package sandbox

import (
	"context"
	"debug/elf"
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

// selfScript is the path of a script whose interpreter is the program that executes it.
// The kernel passes the path as an argument.
const selfScript = "/proc/self/cwd/script"

func init() {
	testproc.Register(selfScript, func([]string) int {
		fmt.Print(errors.Is(os.Chmod("/proc/self/exe", 0o777), unix.EROFS))
		return 0
	})
	testproc.Register("sandbox-self-removed", func([]string) int {
		if err := startWithoutOwnFile(); err != nil {
			fmt.Println("failed:", err)
			return 1
		}
		return 0
	})
}

// TestSelf_CannotBeChangedFromInside has a program write to the executable of the
// server through /proc.
func TestSelf_CannotBeChangedFromInside(t *testing.T) {
	dir := build(t, "script = #!/proc/self/exe execwire-testproc\n")
	if err := os.Chmod(dir+"/script", 0o755); err != nil {
		t.Fatal(err)
	}
	plan := resolve(t, Policy{Entries: []Entry{{Special: SpecialRoot, Access: AccessWrite}}})
	program := Program{Path: selfScript, Argv: []string{"script"}, Env: []string{promptExit}, Dir: dir}
	if output, status := runProgram(t, probed(t, Bubblewrap), plan, program); status != 0 || output != "true" {
		t.Errorf("it is read-only: %q, %#x", output, status)
	}
}

// TestSelf_MayBeRemoved starts a program after the executable of the server was
// replaced, as in an upgrade.
func TestSelf_MayBeRemoved(t *testing.T) {
	program := filepath.Join(build(t), "program")
	copyProgram(t, program, 0o755)
	command := exec.CommandContext(t.Context(), program, testproc.Argv("sandbox-self-removed")[1:]...)
	command.Env = []string{promptExit, "PATH=" + os.Getenv("PATH")}
	if output, err := command.CombinedOutput(); err != nil || string(output) != "ran\n" {
		t.Errorf("%v: %s", err, output)
	}
}

func startWithoutOwnFile() error {
	if err := os.Rename(os.Args[0], os.Args[0]+".old"); err != nil {
		return err
	}
	if err := os.WriteFile(os.Args[0], nil, 0o755); err != nil {
		return err
	}
	policy := Policy{Entries: []Entry{{Special: SpecialRoot, Access: AccessRead}}}
	plan, err := policy.Resolve(context.Background(), ResolveOptions{})
	if err != nil {
		return err
	}
	if err := os.Remove(os.Args[0] + ".old"); err != nil {
		return err
	}
	sandboxes := New(Options{Without: []Backend{Landlock}})
	defer sandboxes.Close()
	sandboxes.probeOnce.Do(func() { // a probe executes this program's file
		path, err := findBubblewrap("")
		sandboxes.statuses = []Status{{Backend: Bubblewrap, Path: path, Err: err}}
		close(sandboxes.probed)
	})
	program := shell("echo ran")
	program.Files, program.Terminal = []int{0, 1, 2}, -1
	pid, release, err := launchProgram(program, sandboxes, plan)
	if err != nil {
		return err
	}
	defer release()
	if status := reap(pid); status != 0 {
		return fmt.Errorf("it ended with %#x", status)
	}
	return nil
}

// TestInterpreterOf compares with what package elf reads, of a program with libraries and
// one without.
func TestInterpreterOf(t *testing.T) {
	for _, path := range []string{"/bin/sh", "/proc/self/exe"} {
		file, err := elf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		want := ""
		for _, part := range file.Progs {
			if part.Type == elf.PT_INTERP {
				name, err := io.ReadAll(part.Open())
				if err != nil {
					t.Fatal(err)
				}
				want = strings.TrimRight(string(name), "\x00")
			}
		}
		program, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer program.Close()
		if got, err := interpreterOf(program); err != nil || got != want {
			t.Errorf("the interpreter of %s is %q, %v, want %q", path, got, err, want)
		}
	}
	if _, err := interpreterOf(strings.NewReader("#!/bin/sh\n")); err == nil {
		t.Error("a script has an interpreter of ELF")
	}
}
