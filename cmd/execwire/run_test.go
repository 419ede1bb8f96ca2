package main

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// onEveryListener runs a test against the embedded server and against one of each kind of
// listener.
func onEveryListener(t *testing.T, test func(t *testing.T, run func(arguments ...string) *exec.Cmd)) {
	socket := "unix://" + filepath.Join(t.TempDir(), "socket")
	// Processes left by a test end with it.
	s := startServerWith(t, []string{"EXECWIRE_SHUTDOWN_GRACE_PERIOD=0s"}, "tcp://127.0.0.1:0", socket)
	for name, url := range map[string]string{"in process": "", "tcp": s.urls[0], "unix": s.urls[1]} {
		t.Run(name, func(t *testing.T) {
			test(t, func(arguments ...string) *exec.Cmd {
				return command(t, append([]string{"run", "--server", url}, arguments...)...)
			})
		})
	}
}

func TestRun_SeparatesStreams(t *testing.T) {
	onEveryListener(t, func(t *testing.T, run func(...string) *exec.Cmd) {
		got := runCommand(t, run("--", "sh", "-c", "echo out; echo err >&2; exit 7"))
		if want := (result{7, "out\n", "err\n"}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	})
}

func TestRun_Stdin_RequiresFlag(t *testing.T) {
	onEveryListener(t, func(t *testing.T, run func(...string) *exec.Cmd) {
		for flag, want := range map[string]string{"-i": "HELLO\n", "--": ""} {
			c := run(flag, "tr", "a-z", "A-Z")
			c.Stdin = strings.NewReader("hello\n")
			if got := runCommand(t, c); got != (result{0, want, ""}) {
				t.Errorf("%s: got %+v, want stdout %q", flag, got, want)
			}
		}
	})
}

// The process ends while stdin stays open.
func TestRun_StdinOpen_EndsWithProcess(t *testing.T) {
	onEveryListener(t, func(t *testing.T, run func(...string) *exec.Cmd) {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		c := run("-i", "echo", "done")
		c.Stdin = r
		got := runCommand(t, c)
		_ = r.Close()
		if got != (result{0, "done\n", ""}) {
			t.Errorf("got %+v", got)
		}
	})
}

func TestRun_Environment(t *testing.T) {
	const show = `echo "$A|$HOME|$SECRET_KEY|$B"`
	file := filepath.Join(t.TempDir(), "env")
	if err := os.WriteFile(file, []byte("# comment\n\nA=file\nB=from file\nSECRET_KEY\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	url := startServer(t, "tcp://127.0.0.1:0").urls[0]
	for name, test := range map[string]struct {
		arguments []string
		want      string
	}{
		"ours inherits all":         {nil, "|/home/of/test|local|"},
		"ours inherits none":        {[]string{"--env-inherit", "none"}, "|||"},
		"remote inherits core":      {[]string{"--server", url}, "|/home/of/test||"},
		"remote all leaves secrets": {[]string{"--server", url, "--env-inherit", "all"}, "|/home/of/test||"},
		"value":                     {[]string{"-e", "A=1", "--env", "B=x=y z"}, "1|/home/of/test|local|x=y z"},
		"passed on":                 {[]string{"--server", url, "-e", "SECRET_KEY", "-e", "NOT_SET"}, "|/home/of/test|local|"},
		"file":                      {[]string{"--server", url, "--env-file", file}, "file|/home/of/test|local|from file"},
		"flag wins over file":       {[]string{"--env-file", file, "-e", "A=flag"}, "flag|/home/of/test|local|from file"},
	} {
		t.Run(name, func(t *testing.T) {
			arguments := append(append([]string{"run"}, test.arguments...), "--", "/bin/sh", "-c", show)
			if got := runCommand(t, command(t, arguments...)); got != (result{0, test.want + "\n", ""}) {
				t.Errorf("got %+v, want %q", got, test.want)
			}
		})
	}
}

func TestRun_ServerVariable(t *testing.T) {
	s := startServer(t, "tcp://127.0.0.1:0")
	c := command(t, "run", "--", "sh", "-c", "echo $PPID")
	c.Env = append(c.Env, serverVariable+"="+s.urls[0])
	got := runCommand(t, c)
	local := runCommand(t, command(t, "run", "--", "sh", "-c", "echo $PPID"))
	if got.code != 0 || local.code != 0 || got.out == local.out {
		t.Errorf("run under %q, and without a server under %q", got.out, local.out)
	}
}

// A server that rejects the command form of run names the setting to enable it.
func TestRun_CommandFormDisabled_Fails(t *testing.T) {
	s := startServerWith(t, []string{"EXECWIRE_ALLOW_DIRECT_EXEC=off"}, "tcp://127.0.0.1:0")
	got := runCommand(t, command(t, "run", "--server", s.urls[0], "--", "true"))
	if got.code != codeFailed || !strings.Contains(got.errOut, "starts no direct commands") ||
		!strings.Contains(got.errOut, "EXECWIRE_ALLOW_DIRECT_EXEC=on") {
		t.Errorf("the exit code is %d, stderr %q", got.code, got.errOut)
	}
}

// startReading starts c and returns its stdout after line was printed.
func startReading(t *testing.T, c *exec.Cmd, line string) *bufio.Reader {
	t.Helper()
	pipe, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	out := bufio.NewReader(pipe)
	if got, err := out.ReadString('\n'); got != line+"\n" {
		t.Fatalf("read %q, %v; want %q", got, err, line)
	}
	return out
}

func TestRun_ForwardsSignals(t *testing.T) {
	onEveryListener(t, func(t *testing.T, run func(...string) *exec.Cmd) {
		for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
			c := run("--", "sh", "-c", `for s in INT TERM HUP QUIT; do trap "echo $s; exit 9" $s; done
				echo ready; while :; do sleep 0.01; done`)
			out := startReading(t, c, "ready")
			if err := c.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			rest, _ := io.ReadAll(out)
			_ = c.Wait()
			want := map[syscall.Signal]string{
				syscall.SIGINT: "INT\n", syscall.SIGTERM: "TERM\n", syscall.SIGHUP: "HUP\n", syscall.SIGQUIT: "QUIT\n",
			}[sig]
			if string(rest) != want || c.ProcessState.ExitCode() != 9 {
				t.Errorf("%v: got %q and exit code %d", sig, rest, c.ProcessState.ExitCode())
			}
		}
	})
}

func TestRun_ThirdInterrupt_Kills(t *testing.T) {
	onEveryListener(t, func(t *testing.T, run func(...string) *exec.Cmd) {
		c := run("--", "sh", "-c", `trap "echo no" INT; echo ready; while :; do sleep 0.01; done`)
		out := startReading(t, c, "ready")
		interrupts := 0
		for line := "no\n"; line == "no\n"; interrupts++ { // on a busy machine the first are too long ago
			_ = c.Process.Signal(syscall.SIGINT)
			line, _ = out.ReadString('\n')
		}
		if _ = c.Wait(); c.ProcessState.ExitCode() != 128+int(syscall.SIGKILL) || interrupts < 3 {
			t.Errorf("exit code %d after %d interrupts", c.ProcessState.ExitCode(), interrupts)
		}
	})
}

func TestRun_BrokenPipe_EndsSilently(t *testing.T) {
	onEveryListener(t, func(t *testing.T, run func(...string) *exec.Cmd) {
		c := run("yes")
		var errOut strings.Builder
		c.Stderr = &errOut
		pipe, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := pipe.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		_ = pipe.Close()
		_ = c.Wait()
		if c.ProcessState.ExitCode() != codeBrokenPipe || errOut.String() != "" {
			t.Errorf("exit code %d, stderr %q", c.ProcessState.ExitCode(), &errOut)
		}
	})
}

func TestServe_Drains(t *testing.T) {
	t.Run("waits for processes", func(t *testing.T) {
		s := startServer(t, "tcp://127.0.0.1:0")
		c := command(t, "run", "--server", s.urls[0], "-i", "--", "sh", "-c", "echo ready; read x; echo $x; exit 4")
		stdin, err := c.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out := startReading(t, c, "ready")
		_ = s.command.Process.Signal(syscall.SIGTERM)
		_, _ = io.WriteString(stdin, "bye\n")
		rest, _ := io.ReadAll(out)
		if _ = c.Wait(); string(rest) != "bye\n" || c.ProcessState.ExitCode() != 4 {
			t.Errorf("got %q and exit code %d", rest, c.ProcessState.ExitCode())
		}
		s.stop(t)
	})
	t.Run("at once when asked twice", func(t *testing.T) {
		s := startServer(t, "tcp://127.0.0.1:0")
		c := command(t, "run", "--server", s.urls[0], "--", "sh", "-c", "echo ready; exec sleep 60")
		var errOut strings.Builder
		c.Stderr = &errOut
		out := startReading(t, c, "ready")
		s.stop(t, syscall.SIGTERM, syscall.SIGINT)
		_, _ = io.Copy(io.Discard, out)
		if _ = c.Wait(); c.ProcessState.ExitCode() != 137 || !strings.Contains(errOut.String(), "shut down") {
			t.Errorf("exit code %d, stderr %q", c.ProcessState.ExitCode(), &errOut)
		}
	})
}
