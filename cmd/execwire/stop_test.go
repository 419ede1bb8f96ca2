package main

import (
	"io"
	"os/exec"
	"strings"
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
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	return startListening(t, c, 1), in
}
