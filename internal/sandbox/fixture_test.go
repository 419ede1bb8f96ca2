package sandbox

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/testproc"
)

// build creates files in a new directory: "d/" is a directory, "l -> t" a link, "f = c"
// a file with that content. It returns the path of the directory without links.
func build(t *testing.T, files ...string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		name, content, isFile := strings.Cut(file, " = ")
		name, target, isLink := strings.Cut(name, " -> ")
		path := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		switch {
		case isLink:
			err = errors.Join(err, os.Symlink(strings.ReplaceAll(target, "$DIR", dir), path))
		case isFile:
			err = errors.Join(err, os.WriteFile(path, []byte(strings.ReplaceAll(content, "$DIR", dir)), 0o644))
		default:
			err = errors.Join(err, os.MkdirAll(path, 0o755))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func resolve(t *testing.T, policy Policy) *Plan {
	t.Helper()
	plan, err := policy.Resolve(t.Context(), ResolveOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// eachBackend runs a test with each backend, and a plan that makes everything readable.
func eachBackend(t *testing.T, test func(t *testing.T, sandboxes *Sandboxes, plan *Plan)) {
	t.Helper()
	for _, backend := range []Backend{Bubblewrap, Landlock} {
		t.Run(backend.String(), func(t *testing.T) {
			test(t, probed(t, backend), resolve(t, Policy{Entries: []Entry{{Special: SpecialRoot, Access: AccessRead}}}))
		})
	}
}

// probed returns sandboxes with one backend, which must work.
func probed(t *testing.T, backend Backend) *Sandboxes {
	t.Helper()
	sandboxes := New(Options{Without: others(backend)})
	t.Cleanup(sandboxes.Close)
	if err := sandboxes.Statuses()[backend-1].Err; err != nil {
		t.Fatal(err)
	}
	return sandboxes
}

// run runs a program of testproc confined, and returns what it wrote.
func run(t *testing.T, sandboxes *Sandboxes, plan *Plan, name string, args ...string) string {
	t.Helper()
	argv := testproc.Argv(name, args...)
	output, status := runProgram(t, sandboxes, plan, Program{Path: argv[0], Argv: argv, Env: []string{promptExit}, Dir: "/"})
	if !status.Exited() || status.ExitStatus() != 0 {
		t.Fatalf("%s ended with %#x: %s", name, status, output)
	}
	return output
}

// runProgram runs a program with nothing to read, and returns what it wrote to its output and errors.
func runProgram(t *testing.T, sandboxes *Sandboxes, plan *Plan, program Program) (string, unix.WaitStatus) {
	t.Helper()
	output, status, err := tryProgram(t, sandboxes, plan, program)
	if err != nil {
		t.Fatal(err)
	}
	return output, status
}

// startProgram starts a program of testproc with nothing to read, and returns the end of the pipe that it writes its
// output to. The caller reaps it.
func startProgram(t *testing.T, sandboxes *Sandboxes, plan *Plan, name string) (pid int, output *os.File) {
	t.Helper()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	output, theirs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = output.Close() })
	argv := testproc.Argv(name)
	program := Program{
		Path: argv[0], Argv: argv, Env: []string{promptExit}, Dir: "/",
		Files: []int{int(null.Fd()), int(theirs.Fd()), int(null.Fd())}, Terminal: -1,
	}
	pid, release, err := launchProgram(program, sandboxes, plan)
	_ = theirs.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return pid, output
}

func tryProgram(t *testing.T, sandboxes *Sandboxes, plan *Plan, program Program) (string, unix.WaitStatus, error) {
	t.Helper()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	ours, theirs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	program.Files, program.Terminal = []int{int(null.Fd()), int(theirs.Fd()), int(theirs.Fd())}, -1
	pid, release, err := launchProgram(program, sandboxes, plan)
	_ = theirs.Close()
	if err != nil {
		return "", 0, err
	}
	defer release()
	var text bytes.Buffer
	if _, err := text.ReadFrom(ours); err != nil {
		t.Fatal(err)
	}
	return text.String(), reap(pid), nil
}

func shell(script string) Program {
	return Program{Path: "/bin/sh", Argv: []string{"sh", "-c", script}, Env: []string{"PATH=" + os.Getenv("PATH")}, Dir: "/"}
}

// inTerminal runs a program that has a terminal for its input and a pipe for its output, and waits for it.
func inTerminal(program Program, sandboxes *Sandboxes, plan *Plan) (output string, status unix.WaitStatus, err error) {
	master, slave, err := pty.Open()
	if err != nil {
		return "", 0, err
	}
	defer master.Close()
	ours, theirs, err := os.Pipe()
	if err != nil {
		_ = slave.Close()
		return "", 0, err
	}
	defer ours.Close()
	program.Files, program.Terminal = []int{int(slave.Fd()), int(theirs.Fd()), int(theirs.Fd())}, 0
	pid, release, err := launchProgram(program, sandboxes, plan)
	_, _ = slave.Close(), theirs.Close()
	if err != nil {
		return "", 0, err
	}
	defer release()
	text, err := io.ReadAll(ours)
	return string(text), reap(pid), err
}

// promptExit keeps programs with the race detector from waiting for a second before they exit.
const promptExit = "GORACE=atexit_sleep_ms=0"

// launchProgram starts a program in a session of its own, confined if there is a plan.
func launchProgram(program Program, sandboxes *Sandboxes, plan *Plan) (pid int, release func(), err error) {
	spawn := func(p Program) (err error) {
		pid, err = p.ForkExec(syscall.SysProcAttr{Setsid: true})
		return err
	}
	if sandboxes == nil {
		err = spawn(program)
		return pid, func() {}, err
	}
	confinement, err := sandboxes.Confine(plan)
	if err != nil {
		return 0, nil, err
	}
	usage, err := confinement.Start(context.Background(), program, spawn)
	if err != nil && pid != 0 {
		killGroup(pid)
	}
	return pid, usage.Release, err
}

func reap(pid int) (status unix.WaitStatus) {
	for {
		if _, err := unix.Wait4(pid, &status, 0, nil); !errors.Is(err, unix.EINTR) {
			return status
		}
	}
}
