package main

import (
	"bufio"
	"bytes"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// A server started by a program ends with it, and so do its processes: the kernel
// closes the pipe in any case.
func TestServe_UntilStdinCloses(t *testing.T) {
	for _, guardian := range []string{"on", "off"} {
		t.Run("guardian "+guardian, func(t *testing.T) {
			c := command(t, "serve", "--until-stdin-closes", "--listen", "tcp://127.0.0.1:0")
			c.Env = append(c.Env, "EXECWIRE_GUARDIAN="+guardian, "EXECWIRE_SHUTDOWN_GRACE_PERIOD=10ms")
			s, in := startWithStdin(t, c)
			expectHello(t, s.urls[0])
			if _, err := io.WriteString(in, "means nothing"); err != nil {
				t.Fatal(err)
			}
			detached := runCommand(t, command(t, "run", "--server", s.urls[0], "--detach", "--", "sh", "-c", "echo $$; exec sleep 1000"))
			id := strings.TrimSpace(detached.out)
			pid := runCommand(t, command(t, "wait", "--server", s.urls[0], "--pattern", "[0-9]+", id))
			if detached.code != 0 || pid.code != 0 {
				t.Fatalf("%+v, %+v", detached, pid)
			}
			if err := in.Close(); err != nil {
				t.Fatal(err)
			}
			s.stop(t) // without a signal
			if left := runCommand(t, exec.Command("ps", "-o", "args=", "-p", strings.TrimSpace(pid.out))); strings.Contains(left.out, "sleep") {
				t.Errorf("a process still runs: %s", left.out)
			}
		})
	}
}

// startWithStdin starts a command that serves at one URL and returns its stdin.
func startWithStdin(t *testing.T, c *exec.Cmd) (*server, io.WriteCloser) {
	t.Helper()
	var errOut bytes.Buffer
	c.Stderr = &errOut
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	s := &server{command: c, stdout: bufio.NewReader(out)}
	t.Cleanup(func() { s.stop(t, syscall.SIGTERM) })
	line, err := s.stdout.ReadString('\n')
	if err != nil {
		t.Fatalf("it does not listen: %v: %s", err, &errOut)
	}
	s.urls = []string{strings.TrimSpace(line)}
	return s, in
}
