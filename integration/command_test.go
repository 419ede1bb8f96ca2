package integration

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// command is the command execwire running in another process.
type command struct {
	*exec.Cmd
	urls   map[door]string // where a server listens
	errors lockedBuffer    // what it says on stderr
	waited func() error
}

// lockedBuffer is a buffer that is read while it is written.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// newCommand prepares the command with an environment that tests know.
func newCommand(args ...string) *command {
	return prepare(exec.Command(execwire, args...))
}

// prepare prepares any command so.
func prepare(cmd *exec.Cmd) *command {
	c := &command{Cmd: cmd}
	c.Dir = "/"
	for name, value := range environment() {
		c.Env = append(c.Env, name+"="+value)
	}
	c.Stderr = &c.errors
	c.waited = sync.OnceValue(c.Wait)
	return c
}

// launch starts the command and makes sure that it is gone after the test.
func (c *command) launch(t testing.TB) {
	t.Helper()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.kill()
		if t.Failed() && c.errors.String() != "" {
			t.Logf("%v said:\n%s", c.Args[1:2], c.errors.String())
		}
	})
}

// await waits for the end of the command and returns its exit code, or -1 if a
// signal ended it.
func (c *command) await(t testing.TB) int {
	t.Helper()
	over := make(chan struct{})
	go func() { _ = c.waited(); close(over) }()
	select {
	case <-over:
	case <-testContext(t).Done():
		t.Fatalf("%v does not end", c.Args)
	}
	return c.ProcessState.ExitCode()
}

func (c *command) send(t testing.TB, signal unix.Signal) {
	t.Helper()
	if err := c.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
}

// kill kills the command if it still runs, and waits for its end. A guardian is
// left to do its work.
func (c *command) kill() {
	if c.ProcessState == nil { // so that its number is still its own
		doomed := c.Process.Pid
		if server, guarded := serverOf(doomed); guarded {
			doomed = server
		}
		_ = unix.Kill(doomed, unix.SIGKILL)
	}
	_ = c.waited()
}

// serve runs a server in another process, with a unix socket and a free port,
// until the test ends. settings are in the form NAME=value.
func serve(t testing.TB, settings ...string) *command {
	t.Helper()
	return serveWith(t, nil, settings...)
}

// serveWith is serve with flags.
func serveWith(t testing.TB, flags []string, settings ...string) *command {
	t.Helper()
	c := newCommand(append([]string{"serve", "--listen", "unix://" + filepath.Join(shortDir(t), "s"), "--listen", "grpc://127.0.0.1:0", "--listen", "ws://127.0.0.1:0"}, flags...)...)
	c.Env = append(c.Env, settings...)
	c.listen(t, 3)
	return c
}

// listen launches a server and reads where it listens: at so many doors.
func (c *command) listen(t testing.TB, doors int) {
	t.Helper()
	said, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.launch(t)
	c.urls = map[door]string{}
	lines := bufio.NewReader(said)
	for range doors {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatalf("the server did not come up: %v\n%s", err, c.errors.String())
		}
		url := strings.TrimSpace(line)
		c.urls[doorOf(url)] = url
	}
}

// address is where the door is in the terms of package net.
func (c *command) address(d door) string {
	return addressIn(c.urls[d])
}

// result is what a command left.
type result struct {
	code           int
	stdout, stderr string
}

// run runs the command to its end with this input; nil is none.
func run(t testing.TB, input io.Reader, args ...string) result {
	t.Helper()
	return newCommand(args...).complete(t, input)
}

// complete runs a prepared command to its end.
func (c *command) complete(t testing.TB, input io.Reader) result {
	t.Helper()
	var stdout bytes.Buffer
	c.Stdin, c.Stdout = input, &stdout
	c.launch(t)
	code := c.await(t)
	return result{code: code, stdout: stdout.String(), stderr: c.errors.String()}
}

// through is the beginning of a command line that runs something on the server.
func (c *command) through(d door, flags ...string) []string {
	return append([]string{"run", "--server", c.urls[d]}, flags...)
}

// repository is the root of this one.
func repository(t testing.TB) string {
	t.Helper()
	root, err := filepath.Abs("..")
	if err == nil {
		_, err = os.Stat(filepath.Join(root, "go.mod"))
	}
	if err != nil {
		t.Fatal(errors.Join(errors.New("failed to find the repository"), err))
	}
	return root
}
