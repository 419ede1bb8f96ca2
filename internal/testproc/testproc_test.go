package testproc

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"github.com/execwire/execwire/internal/leakcheck"
)

func TestMain(m *testing.M) {
	Main()
	leakcheck.Main(m)
}

func run(t *testing.T, stdin string, name string, args ...string) (stdout, stderr string, state *os.ProcessState) {
	t.Helper()
	argv := Argv(name, args...)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, err bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &err
	if e := cmd.Run(); cmd.ProcessState == nil {
		t.Fatal(e)
	}
	return out.String(), err.String(), cmd.ProcessState
}

func TestFlood(t *testing.T) {
	out, err, state := run(t, "", "flood", "-bytes", "100003", "-stderr", "7001", "-chunk", "777")
	if !state.Success() {
		t.Fatal(state)
	}
	for pattern, got := range map[Pattern]string{StdoutPattern: out, StderrPattern: err} {
		v := pattern.NewVerifier()
		if _, err := io.Copy(v, strings.NewReader(got)); err != nil {
			t.Error(err)
		}
	}
	if len(out) != 100003 || len(err) != 7001 {
		t.Errorf("got %d and %d bytes", len(out), len(err))
	}
}

func TestVerifier_WrongBytes(t *testing.T) {
	right := make([]byte, 1000)
	StdoutPattern.Fill(right, 0)
	for name, wrong := range map[string][]byte{
		"changed": append(append([]byte{}, right[:500]...), right[500]^1),
		"lost":    append(append([]byte{}, right[:500]...), right[501:]...),
		"doubled": append(append([]byte{}, right[:500]...), right[492:]...),
	} {
		v := StdoutPattern.NewVerifier()
		if _, err := v.Write(wrong); err == nil {
			t.Errorf("%s: no error", name)
		}
		if v.Offset() < 500 || v.Offset() > 502 {
			t.Errorf("%s: offset %d", name, v.Offset())
		}
		if _, err := v.Write(nil); err == nil {
			t.Errorf("%s: the error is forgotten", name)
		}
	}
}

func TestPattern_Offsets(t *testing.T) {
	whole, err := io.ReadAll(StderrPattern.Reader(64))
	if err != nil {
		t.Fatal(err)
	}
	for offset := range whole {
		part := make([]byte, len(whole)-offset)
		StderrPattern.Fill(part, uint64(offset))
		if !bytes.Equal(part, whole[offset:]) {
			t.Errorf("different from offset %d", offset)
		}
	}
}

func TestPrograms(t *testing.T) {
	for _, test := range []struct {
		name         string
		args         []string
		stdin        string
		out, err     string
		code         int
		signal       syscall.Signal
		outIsPartial bool
	}{
		{name: "echo", stdin: "hello", out: "hello", err: "end of input\n"},
		{name: "exit", args: []string{"42"}, code: 42},
		{name: "signal-self", args: []string{"11"}, code: -1, signal: syscall.SIGSEGV},
		{name: "args", args: []string{"a", "b c"}, out: `","a","b c"]` + "\n", outIsPartial: true},
		{name: "close-stdout", out: "ready\n"},
		{name: "tree", args: []string{"0", "leave"}, out: "ready\n"},
		{name: "no-such-program", err: "testproc: no program named \"no-such-program\"\n", code: 125},
	} {
		t.Run(test.name, func(t *testing.T) {
			out, err, state := run(t, test.stdin, test.name, test.args...)
			if out != test.out && (!test.outIsPartial || !strings.HasSuffix(out, test.out)) {
				t.Errorf("stdout %q, want %q", out, test.out)
			}
			if err != test.err {
				t.Errorf("stderr %q, want %q", err, test.err)
			}
			if state.ExitCode() != test.code {
				t.Errorf("exit code %d, want %d", state.ExitCode(), test.code)
			}
			if got := state.Sys().(syscall.WaitStatus); test.signal != 0 && got.Signal() != test.signal {
				t.Errorf("signal %v, want %v", got.Signal(), test.signal)
			}
		})
	}
}

func TestStatus(t *testing.T) {
	extra, err := os.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	defer extra.Close()
	argv := Argv("status")
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.ExtraFiles = []*os.File{extra}
	cmd.Dir = "/usr"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var got Status
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if got.SID != got.PID || got.PGID != got.PID || got.PPID != os.Getpid() || got.Cwd != "/usr" || got.Terminal {
		t.Errorf("wrong facts: %+v", got)
	}
	if got.Descriptors[3] != "/" || got.Descriptors[0] != "/dev/null" {
		t.Errorf("descriptors %v", got.Descriptors)
	}
}

func TestEnv(t *testing.T) {
	argv := Argv("env")
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = []string{"A=1", "B=x=y"}
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	if err := json.Unmarshal(out, &got); err != nil || !reflect.DeepEqual(got, cmd.Env) {
		t.Errorf("got %s, %v", out, err)
	}
}

func TestHoldPipes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "go")
	argv := Argv("hold-pipes", file)
	cmd := exec.Command(argv[0], argv[1:]...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = out.Close() }() // cmd.Wait would close it too early
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	state, err := cmd.Process.Wait()
	if err != nil || state.ExitCode() != 3 {
		t.Fatal(state, err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	output, err := io.ReadAll(out)
	if err != nil || !strings.HasPrefix(string(output), "parent ") || !strings.HasSuffix(string(output), "\nlate\n") {
		t.Errorf("output %q, %v", output, err)
	}
}

func TestTermPrograms(t *testing.T) {
	for name, want := range map[string]string{"trap-term": "ready\nterminated\n", "ignore-term": "ready\n"} {
		argv := Argv(name)
		cmd := exec.Command(argv[0], argv[1:]...)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ready := make([]byte, len("ready\n"))
		if _, err := io.ReadFull(out, ready); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if name == "ignore-term" {
			_ = cmd.Process.Kill()
		}
		rest, _ := io.ReadAll(out)
		err = cmd.Wait()
		if got := string(ready) + string(rest); got != want {
			t.Errorf("%s printed %q, want %q", name, got, want)
		}
		if name == "trap-term" && cmd.ProcessState.ExitCode() != 7 {
			t.Errorf("%s: %v", name, err)
		}
	}
}
