package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/integration/harness"
)

// A player at a terminal has keys, and restores the terminal.
func TestPlay_AtATerminal_PausesAndQuits(t *testing.T) {
	t.Parallel()
	file := filepath.Join(harness.ShortDir(t), "cast")
	cast := "{\"version\":3,\"term\":{\"cols\":80,\"rows\":24}}\n[0.1,\"o\",\"first\\r\\n\\u001b[?25l\"]\n[1000000,\"o\",\"second\\r\\n\"]\n[0.1,\"o\",\"third\\r\\n\"]\n"
	if err := os.WriteFile(file, []byte(cast), 0o600); err != nil {
		t.Fatal(err)
	}
	p := harness.NewPane(t, 100, 24)
	saveSettings(p, file+".before")
	clearPane(p, "local[0]$")
	p.Enter(harness.Execwire + " play " + file)
	p.AwaitLine("first")
	p.Key(" ")
	p.Key(".")
	p.AwaitLine("second")
	p.Key("q")
	p.AwaitLine("local[0]$")
	clearPane(p, "local[0]$")
	p.Enter(harness.Execwire + " play -s 10 -i 0.01 " + file + " " + file)
	p.Await("the recording twice", func(screen string) bool { return strings.Count(screen, "third\n") == 2 })
	saveSettings(p, file+".after")
	expectSameSettings(t, file+".before", file+".after")
}

// In a pipe all output is printed at once, and what is no recording is named.
func TestPlay_InAPipe_PrintsAtOnce(t *testing.T) {
	t.Parallel()
	cast := "{\"version\":2,\"width\":80,\"height\":24}\n[1,\"o\",\"a\"]\n[2,\"i\",\"typed\"]\n[1000000,\"o\",\"b\"]\n[1000001,\"o\",\"torn"
	if got := harness.Run(t, strings.NewReader(cast), "play", "-"); got != (harness.Result{Stdout: "ab"}) {
		t.Errorf("played: %+v", got)
	}
	file := filepath.Join(t.TempDir(), "none")
	if err := os.WriteFile(file, []byte("text\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := harness.Run(t, nil, "play", file); got.Code == 0 || !strings.Contains(got.Stderr, file+": line 1 is not the header of a recording") {
		t.Errorf("no recording: %+v", got)
	}
}

// A run is recorded with its input if that is asked for, in a new file of mode 0600.
func TestRecord_Run(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "cast")
	record := func(args ...string) harness.Result {
		t.Helper()
		return harness.Run(t, strings.NewReader("secret\n"), append([]string{"run", "--server", "local:", "--record", file}, args...)...)
	}
	if got := record("--", "sh", "-c", "echo out; echo err >&2; exit 3"); got != (harness.Result{Code: 3, Stdout: "out\n", Stderr: "err\n"}) {
		t.Errorf("recorded: %+v", got)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file has mode %v, %v", info.Mode(), err)
	}
	if got := harness.Run(t, nil, "play", file); got.Code != 0 || got.Stdout != "out\r\nerr\r\n" && got.Stdout != "err\r\nout\r\n" {
		t.Errorf("played: %+v", got)
	}
	if got := record("--", "true"); got.Code != 125 || !strings.Contains(got.Stderr, "remove it first") {
		t.Errorf("over another file: %+v", got)
	}
	for _, input := range []bool{false, true} {
		_ = os.Remove(file)
		args := []string{"-i", "--", "sh", "-c", "read x; echo read"}
		if input {
			args = append([]string{"--record-input"}, args...)
		}
		if got := record(args...); got != (harness.Result{Stdout: "read\n"}) {
			t.Errorf("recorded: %+v", got)
		}
		if content, err := os.ReadFile(file); err != nil || strings.Contains(string(content), "secret") != input {
			t.Errorf("asked for input: %t, %v: %s", input, err, content)
		}
	}
	if got := record("--detach", "--", "true"); got.Code != 2 {
		t.Errorf("with --detach: %+v", got)
	}
	if got := harness.Run(t, nil, "run", "--server", "local:", "--record-format", "v3", "--", "true"); got.Code != 2 {
		t.Errorf("a format without a file: %+v", got)
	}
}

// A full disk ends the recording, not the run.
func TestRecord_FullDisk_RunGoesOn(t *testing.T) {
	t.Parallel()
	disk := t.TempDir()
	const size = 2 * harness.SmallDisk
	argv := harness.OnSmallDisk(disk, harness.Execwire, "run", "--server", "local:", "--record", filepath.Join(disk, "cast"), "--",
		"sh", "-c", fmt.Sprintf("head -c %d /dev/zero | tr '\\0' x; exit 3", size))
	got := harness.Prepare(exec.Command(argv[0], argv[1:]...)).Complete(t, nil)
	if got.Code != 3 || len(got.Stdout) != size || !strings.Contains(got.Stderr, "is not complete") || !strings.Contains(got.Stderr, "no space left") {
		t.Errorf("code %d with %d bytes: %s", got.Code, len(got.Stdout), got.Stderr)
	}
}

// Ctrl-C ends a recording of a process, which goes on.
func TestRecord_Interrupted_IsWhole(t *testing.T) {
	t.Parallel()
	s := harness.Serve(t)
	s.ExpectCommand(t, harness.UnixTransport, harness.Result{Stdout: "shell\n"}, "run", "--detach", "-t", "--id", "shell", "--", "sh", "-c", "echo early; read x; echo late")
	s.ExpectCommand(t, harness.UnixTransport, harness.Result{}, "wait", "--screen", "early", "shell")
	file := filepath.Join(t.TempDir(), "cast")
	c := harness.NewCommand(s.Remotely(harness.UnixTransport, "record", "-o", file, "shell")...)
	c.Launch(t)
	content := func() string { text, _ := os.ReadFile(file); return string(text) }
	harness.Eventually(t, "the screen is recorded", func() bool { return strings.Contains(content(), "early") })
	c.Send(t, unix.SIGINT)
	if code := c.Await(t); code != 0 {
		t.Errorf("exit code %d: %s", code, c.Errors.String())
	}
	before := content()
	if got := harness.Run(t, nil, "play", file); got.Code != 0 || !strings.Contains(got.Stdout, "early") || !strings.HasSuffix(before, "\n") {
		t.Errorf("played: %+v of %q", got, before)
	}
	if got := harness.Run(t, strings.NewReader("\n"), s.Remotely(harness.UnixTransport, "attach", "-i", "shell")...); got.Code != 0 || !strings.Contains(got.Stdout, "late") {
		t.Errorf("the process: %+v", got)
	}
	if content() != before {
		t.Error("the recording goes on")
	}
}
