package harness

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/testport"
)

// NetworkTransports are the transports that another process can use.
var NetworkTransports = []Transport{UnixTransport, TCPTransport}

// Python is that of Debian, which scripts/install-test-deps installs. python3 in PATH may be the
// script of a version manager, which takes 0.7 s of a processor to start the real one.
const Python = "/usr/bin/python3"

// HeldCommand is a command that runs the program echo on a server until Release is
// closed or the server is gone.
type HeldCommand struct {
	*Command
	Received LockedBuffer
	Release  io.WriteCloser // its input
}

// HoldCommand starts a HeldCommand and waits until it answers.
func HoldCommand(t *testing.T, server *Command, d Transport, flags ...string) *HeldCommand {
	t.Helper()
	flags = append([]string{"-i", "--id", "held"}, flags...)
	h := &HeldCommand{Command: NewCommand(append(server.Through(d, append(flags, "--")...), Program("echo")...)...)}
	h.Stdout = &h.Received
	input, err := h.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	h.Release = input
	h.Launch(t)
	if _, err := input.Write([]byte("held\n")); err != nil {
		t.Fatal(err)
	}
	Eventually(t, "the process answers", func() bool { return h.Received.String() == "held\n" })
	return h
}

// Remote returns a client of a server in another process.
func Remote(t *testing.T, server *Command, d Transport) execwirev1.ProcessServiceClient {
	t.Helper()
	c, err := client.Dial(Context(t), server.URLs[d])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c.Processes()
}

// Command is the command execwire running in another process.
type Command struct {
	*exec.Cmd
	URLs   map[Transport]string // where a server listens
	Errors LockedBuffer         // its stderr
	Waited func() error
}

// LockedBuffer is a buffer that is read while it is written.
type LockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements io.Writer.
func (b *LockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// String returns what was written so far.
func (b *LockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// NewCommand prepares a run of execwire with a known environment.
func NewCommand(args ...string) *Command {
	return Prepare(exec.Command(Execwire, args...))
}

// Prepare gives a command a known environment.
func Prepare(cmd *exec.Cmd) *Command {
	c := &Command{Cmd: cmd}
	c.Dir = "/"
	for name, value := range Environment() {
		c.Env = append(c.Env, name+"="+value)
	}
	c.Stderr = &c.Errors
	c.Waited = sync.OnceValue(c.Wait)
	return c
}

// Launch starts the command and makes sure that it is gone after the test.
func (c *Command) Launch(t testing.TB) {
	t.Helper()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Kill()
		if t.Failed() && c.Errors.String() != "" {
			t.Logf("%v said:\n%s", c.Args[1:2], c.Errors.String())
		}
	})
}

// Await waits for the end of the command and returns its exit code, or -1 if a
// signal ended it.
func (c *Command) Await(t testing.TB) int {
	t.Helper()
	over := make(chan struct{})
	go func() { _ = c.Waited(); close(over) }()
	select {
	case <-over:
	case <-Context(t).Done():
		t.Fatalf("%v does not end", c.Args)
	}
	return c.ProcessState.ExitCode()
}

// Send sends the command a signal.
func (c *Command) Send(t testing.TB, signal unix.Signal) {
	t.Helper()
	if err := c.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
}

// Kill kills the command if it still runs, and waits for its end. It does not wait
// for a guardian.
func (c *Command) Kill() {
	if c.ProcessState == nil { // so that its number is still its own
		doomed := c.Process.Pid
		if server, guarded := ServerOf(doomed); guarded {
			doomed = server
		}
		_ = unix.Kill(doomed, unix.SIGKILL)
	}
	_ = c.Waited()
}

// Serve runs a server in another process, with a unix socket and a TCP port for all protocols, until
// the test ends. Another server can listen there after this one. settings are in the form NAME=value.
func Serve(t testing.TB, settings ...string) *Command {
	t.Helper()
	return ServeWith(t, nil, settings...)
}

// ServeWith is Serve with flags.
func ServeWith(t testing.TB, flags []string, settings ...string) *Command {
	t.Helper()
	c := NewCommand(append([]string{"serve", "--listen", "unix://" + filepath.Join(ShortDir(t), "s"), "--listen", fmt.Sprintf("tcp://127.0.0.1:%d", testport.Reserve(t))}, flags...)...)
	c.Env = append(c.Env, settings...)
	c.Listen(t, 2)
	return c
}

// Listen launches a server and returns the URLs of so many listeners.
func (c *Command) Listen(t testing.TB, listeners int) (urls []string) {
	t.Helper()
	stdout, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.Launch(t)
	c.URLs = map[Transport]string{}
	lines := bufio.NewReader(stdout)
	for range listeners {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatalf("the server did not come up: %v\n%s", err, c.Errors.String())
		}
		url := strings.TrimSpace(line)
		addURL(c.URLs, url)
		urls = append(urls, url)
	}
	return urls
}

// Address returns the address of a listener, as package net has it.
func (c *Command) Address(d Transport) string {
	return AddressOf(c.URLs[d])
}

// Result is the exit code and the output of a command.
type Result struct {
	Code           int
	Stdout, Stderr string
}

// Run runs the command to its end with this input; nil is none.
func Run(t testing.TB, input io.Reader, args ...string) Result {
	t.Helper()
	return NewCommand(args...).Complete(t, input)
}

// Complete runs a prepared command to its end.
func (c *Command) Complete(t testing.TB, input io.Reader) Result {
	t.Helper()
	var stdout bytes.Buffer
	c.Stdin, c.Stdout = input, &stdout
	c.Launch(t)
	code := c.Await(t)
	return Result{Code: code, Stdout: stdout.String(), Stderr: c.Errors.String()}
}

// Through returns the start of a command line that runs a process on the server.
func (c *Command) Through(d Transport, flags ...string) []string {
	return append([]string{"run", "--server", c.URLs[d]}, flags...)
}

// Repository returns the root of the repository.
func Repository(t testing.TB) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err == nil {
		_, err = os.Stat(filepath.Join(root, "go.mod"))
	}
	if err != nil {
		t.Fatal(errors.Join(errors.New("failed to find the repository"), err))
	}
	return root
}

// Remotely returns a command line for the server.
func (c *Command) Remotely(d Transport, name string, args ...string) []string {
	if name == "sessions" && len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		return append([]string{name, args[0], "--server", c.URLs[d]}, args[1:]...)
	}
	return append([]string{name, "--server", c.URLs[d]}, args...)
}

// ExpectCommand runs a command line for the server and compares the result.
func (c *Command) ExpectCommand(t testing.TB, d Transport, want Result, name string, args ...string) {
	t.Helper()
	if got := Run(t, nil, c.Remotely(d, name, args...)...); got != want {
		t.Errorf("%s %q through %s: %+v, want %+v", name, args, d, got, want)
	}
}

// GoEnvironment returns the environment that the go command needs. It builds with the flags of
// the tests, so that what they have compiled is used again, and runs each test.
func GoEnvironment(t *testing.T) []string {
	t.Helper()
	env := []string{"PATH=" + os.Getenv("PATH"), "CGO_ENABLED=0", "GOFLAGS=-count=1 " + os.Getenv("GOFLAGS"), "GORACE=atexit_sleep_ms=0", "TMPDIR=" + ShortDir(t)}
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOPATH", "GOTOOLCHAIN", "GOPROXY"} {
		value, err := exec.Command("go", "env", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		env = append(env, name+"="+strings.TrimSpace(string(value)))
	}
	return env
}
