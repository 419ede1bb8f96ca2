package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/testproc"
)

func TestStart_ArgumentsAndEnvironment_AreExact(t *testing.T) {
	eachBackend(t, func(t *testing.T, sandboxes *Sandboxes, plan *Plan) {
		argv := testproc.Argv("args", "", "a b", "--", "\xff")
		argv[0] = "another name"
		output, _ := runProgram(t, sandboxes, plan, Program{Path: testproc.Argv("args")[0], Argv: argv, Env: []string{promptExit}, Dir: "/"})
		var said []string
		if err := json.Unmarshal([]byte(output), &said); err != nil || !reflect.DeepEqual(said, []string{"another name", "", "a b", "--", "\ufffd"}) {
			t.Errorf("arguments: %q, %v", output, err)
		}
		env := []string{"B=1", "A=", "B=2", "PWD=elsewhere", ".X=y", "LD_PRELOAD=/nowhere.so"}
		output, _ = runProgram(t, sandboxes, plan, Program{Path: "/bin/cat", Argv: []string{"cat", "/proc/self/environ"}, Env: env, Dir: "/"})
		complaint, output, _ := strings.Cut(output, "ignored.\n")
		if want := strings.Join(env, "\x00") + "\x00"; output != want {
			t.Errorf("environment: %q, want %q", output, want)
		}
		if count := strings.Count(complaint, "/nowhere.so"); count != 1 { // only cat was to be given it
			t.Errorf("%d programs obeyed the environment: %s", count, complaint)
		}
	})
}

func TestStart_ExitIsReported(t *testing.T) {
	eachBackend(t, func(t *testing.T, sandboxes *Sandboxes, plan *Plan) {
		for _, code := range []string{"0", "1", "42", "255"} {
			argv := testproc.Argv("exit", code)
			if _, status := runProgram(t, sandboxes, plan, Program{Path: argv[0], Argv: argv, Env: []string{promptExit}, Dir: "/"}); !status.Exited() || code != itoa(status.ExitStatus()) {
				t.Errorf("exit %s: status %#x", code, status)
			}
		}
		argv := testproc.Argv("signal-self", "15")
		_, status := runProgram(t, sandboxes, plan, Program{Path: argv[0], Argv: argv, Env: []string{promptExit}, Dir: "/"})
		confinement, err := sandboxes.Confine(plan)
		if err != nil {
			t.Fatal(err)
		}
		if byCode := confinement.Report().ExitByCode; byCode != status.Exited() || byCode && status.ExitStatus() != 128+15 || !byCode && status.Signal() != syscall.SIGTERM {
			t.Errorf("signal 15: status %#x, by code: %v", status, byCode)
		}
	})
}

func itoa(n int) string { text, _ := json.Marshal(n); return string(text) }

// TestStart_ProcessState_IsOrdinary compares the process state of confined and other
// programs.
func TestStart_ProcessState_IsOrdinary(t *testing.T) {
	eachBackend(t, func(t *testing.T, sandboxes *Sandboxes, plan *Plan) {
		argv := testproc.Argv("status")
		output, _, err := inTerminal(Program{Path: argv[0], Argv: argv, Env: []string{promptExit}, Dir: "/usr"}, sandboxes, plan)
		if err != nil {
			t.Fatal(err)
		}
		var s testproc.Status
		if err := json.Unmarshal([]byte(output), &s); err != nil {
			t.Fatalf("%v: %q", err, output)
		}
		if s.Cwd != "/usr" || !s.Terminal || !s.ControllingTerminal || len(s.NonBlocking) > 0 || len(s.Descriptors) != 3 {
			t.Errorf("wrong facts: %+v", s)
		}
		status, _ := runProgram(t, sandboxes, plan, Program{Path: "/bin/cat", Argv: []string{"cat", "/proc/self/status"}, Dir: "/"})
		for name, value := range map[string]string{
			"SigBlk": "0000000000000000", "NoNewPrivs": "1", "Seccomp": "2", "CapPrm": "0000000000000000",
			"CapEff": "0000000000000000", "CapInh": "0000000000000000", "CapAmb": "0000000000000000",
		} {
			if line := name + ":\t" + value + "\n"; !strings.Contains(status, line) {
				t.Errorf("no line %q in %s", line, status)
			}
		}
	})
}

func init() {
	testproc.Register("sandbox-open-files", func([]string) int {
		if err := tellOpenFiles(); err != nil {
			fmt.Println("failed:", err)
			return 1
		}
		return 0
	})
}

// TestOpenFilesLimit_IsTheOneTheServerWasStartedWith, although package syscall raises
// that of the server.
func TestOpenFilesLimit_IsTheOneTheServerWasStartedWith(t *testing.T) {
	argv := append([]string{"-c", `ulimit -Sn 500; ulimit -Hn 5000; exec "$0" "$@"`}, testproc.Argv("sandbox-open-files")...)
	command := exec.CommandContext(t.Context(), "/bin/sh", argv...)
	command.Env = []string{promptExit, "PATH=" + os.Getenv("PATH")}
	if output, err := command.CombinedOutput(); err != nil || string(output) != strings.Repeat("500\n5000\n", 3) {
		t.Errorf("%v: %s", err, output)
	}
}

// tellOpenFiles prints the limits of a program without a sandbox, and with each
// backend.
func tellOpenFiles() error {
	policy := Policy{Entries: []Entry{{Special: SpecialRoot, Access: AccessRead}}}
	plan, err := policy.Resolve(context.Background(), ResolveOptions{})
	if err != nil {
		return err
	}
	for _, backend := range []Backend{0, Bubblewrap, Landlock} {
		var sandboxes *Sandboxes
		if backend != 0 {
			sandboxes = New(Options{Without: others(backend)})
			defer sandboxes.Close()
		}
		program := shell("ulimit -Sn; ulimit -Hn")
		program.Files, program.Terminal = []int{0, 1, 2}, -1
		pid, release, err := launchProgram(program, sandboxes, plan)
		if err != nil {
			return err
		}
		reap(pid)
		release()
	}
	return nil
}

func TestStart_TerminalHasAName(t *testing.T) {
	eachBackend(t, func(t *testing.T, sandboxes *Sandboxes, plan *Plan) {
		output, status, err := inTerminal(Program{Path: "/usr/bin/tty", Argv: []string{"tty"}, Dir: "/"}, sandboxes, plan)
		if err != nil || status != 0 || !strings.HasPrefix(output, "/dev/") {
			t.Errorf("tty said %q: %#x, %v", output, status, err)
		}
	})
}

// TestStart_SignalsReachTheProgram sends a signal that the program handles to its
// process group: bwrap must not end.
func TestStart_SignalsReachTheProgram(t *testing.T) {
	eachBackend(t, func(t *testing.T, sandboxes *Sandboxes, plan *Plan) {
		pid, output := startProgram(t, sandboxes, plan, "trap-term")
		if _, err := io.ReadFull(output, make([]byte, len("ready\n"))); err != nil {
			t.Fatal(err)
		}
		if err := unix.Kill(-pid, unix.SIGTERM); err != nil {
			t.Fatal(err)
		}
		rest, err := io.ReadAll(output)
		if status := reap(pid); string(rest) != "terminated\n" || err != nil || status.ExitStatus() != 7 {
			t.Errorf("it said %q and ended with %#x: %v", rest, status, err)
		}
	})
}

// TestKill_LeavesNothing kills the process group of the spawned process, of which the
// program is a member.
func TestKill_LeavesNothing(t *testing.T) {
	eachBackend(t, func(t *testing.T, sandboxes *Sandboxes, plan *Plan) {
		pid, output := startProgram(t, sandboxes, plan, "ignore-term")
		killGroup(pid)
		if _, err := io.ReadAll(output); err != nil { // it ends when nobody holds the pipe
			t.Error(err)
		}
	})
}

func TestStart_OutputEndsWithTheProgram(t *testing.T) {
	eachBackend(t, func(t *testing.T, sandboxes *Sandboxes, plan *Plan) {
		pid, output := startProgram(t, sandboxes, plan, "close-stdout")
		defer killGroup(pid)
		if said, err := io.ReadAll(output); string(said) != "ready\n" || err != nil { // the program itself goes on
			t.Errorf("it said %q: %v", said, err)
		}
	})
}

func TestStart_UnexecutableProgram_Fails(t *testing.T) {
	dir := build(t, "script = #!/nowhere/sh\n", "text = hello", "hidden/")
	if err := errors.Join(os.Chmod(dir+"/script", 0o755), os.Chmod(dir+"/text", 0o755)); err != nil {
		t.Fatal(err)
	}
	eachBackend(t, func(t *testing.T, sandboxes *Sandboxes, plan *Plan) {
		for path, want := range map[string]syscall.Errno{
			dir + "/missing": unix.ENOENT, dir + "/script": unix.ENOENT, dir + "/text": unix.ENOEXEC, dir: unix.EACCES,
		} {
			_, _, err := tryProgram(t, sandboxes, plan, Program{Path: path, Argv: []string{path}, Dir: "/"})
			var typed *Error
			if !errors.As(err, &typed) || typed.Kind != NotExecuted || typed.Errno != want || typed.Path != path {
				t.Errorf("%s: %v, want %v", path, err, want)
			}
		}
		_, _, err := tryProgram(t, sandboxes, plan, Program{Path: "/bin/true", Argv: []string{"true"}, Dir: dir + "/missing"})
		if err == nil || !strings.Contains(strings.ToLower(err.Error()), "no such file") {
			t.Errorf("a missing directory: %v", err)
		}
	})
}

func TestStart_ContextEnds_Fails(t *testing.T) {
	sandboxes := probed(t, Bubblewrap)
	confinement, err := sandboxes.Confine(resolve(t, Policy{Entries: []Entry{{Special: SpecialRoot, Access: AccessRead}}}))
	if err != nil {
		t.Fatal(err)
	}
	why := errors.New("the caller has gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	pid := 0
	_, err = confinement.Start(ctx, Program{Path: "/bin/true", Argv: []string{"true"}, Dir: "/", Files: []int{0, 1, 2}, Terminal: -1}, func(p Program) (err error) {
		// Something that never becomes the program.
		argv := testproc.Argv("sleep")
		p.Path, p.Argv, p.Env = argv[0], argv, nil
		pid, err = forkExec(p)
		cancel(why)
		return err
	})
	killGroup(pid)
	if !errors.Is(err, why) {
		t.Errorf("got %v, want %v", err, why)
	}
}

func TestStart_SpawnFails_ReturnsItsError(t *testing.T) {
	why := errors.New("no processes left")
	eachBackend(t, func(t *testing.T, sandboxes *Sandboxes, plan *Plan) {
		confinement, err := sandboxes.Confine(plan)
		if err != nil {
			t.Fatal(err)
		}
		program := Program{Path: "/bin/true", Argv: []string{"true"}, Dir: "/", Files: []int{0, 1, 2}, Terminal: -1}
		if _, err := confinement.Start(t.Context(), program, func(Program) error { return why }); !errors.Is(err, why) {
			t.Errorf("got %v, want %v", err, why)
		}
	})
}

// TestStart_UnrestrictedFiles restricts the network alone.
func TestStart_UnrestrictedFiles(t *testing.T) {
	dir := build(t, "file = x")
	for _, backend := range []Backend{Bubblewrap, Landlock} {
		t.Run(backend.String(), func(t *testing.T) {
			sandboxes, plan := probed(t, backend), resolve(t, Policy{Unrestricted: true})
			script := "echo y > " + dir + "/file && chmod 600 " + dir + "/file && touch " + dir + "/new"
			if output, status := runProgram(t, sandboxes, plan, shell(script)); status != 0 {
				t.Errorf("%#x: %s", status, output)
			}
			if err := os.Remove(dir + "/new"); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestStart_NetworkEnabled shows that it is the filter and the namespace that keep programs from the network, and nothing
// else.
func TestStart_NetworkEnabled(t *testing.T) {
	eachBackend(t, func(t *testing.T, sandboxes *Sandboxes, _ *Plan) {
		plan := resolve(t, Policy{Network: NetworkEnabled, Entries: []Entry{{Special: SpecialRoot, Access: AccessRead}}})
		dir := build(t, "work/")
		server := &attemptServer{stage: stage{Base: dir, Dir: dir + "/work"}}
		text, err := json.Marshal(server.stage)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"listen by TCP", "use netlink"} {
			if said := run(t, sandboxes, plan, "sandbox-attempt", name, string(text)); said != "it worked" {
				t.Errorf("%s: %s", name, said)
			}
		}
	})
}

// TestStart_OrdinaryProgramsRun builds something, as programs do.
func TestStart_OrdinaryProgramsRun(t *testing.T) {
	dir := build(t, "w/main.c = #include <stdio.h>\nint main(void) { puts(\"hello\"); return 0; }\n")
	plan := resolve(t, Policy{Entries: []Entry{
		{Special: SpecialMinimal, Access: AccessRead}, {Path: dir + "/w", Access: AccessWrite}, {Path: "/dev/null", Access: AccessWrite},
	}})
	script := "cd " + dir + `/w && mkdir -p a && TMPDIR=$PWD gcc -o a/hello main.c && ./a/hello | tee out &&
		cp -p out out2 && chmod 700 out2 && mv out2 a/ && tar cf t.tar a && rm -r a && tar xf t.tar &&
		seq 100000 | sort -n --parallel=2 | tail -1`
	if output, status := runProgram(t, probed(t, Bubblewrap), plan, shell(script)); status != 0 || output != "hello\n100000\n" {
		t.Errorf("%#x: %s", status, output)
	}
}
