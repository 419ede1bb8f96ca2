package execserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/execwire/execwire/gateway/jsonrpc"
)

const (
	// DefaultLaunchPatience is how long a command may take to end when its standard
	// input has.
	DefaultLaunchPatience = 5 * time.Second
	// outputPatience is how long what a command has started may hold its output open
	// when it has ended itself.
	outputPatience = time.Second
	// keptStderr is how much of what a command said last is in the error when it has
	// ended.
	keptStderr = 2 << 10
	// keptOutput is how much of what it said first is in the error when it serves
	// something else.
	keptOutput = 100
)

// LaunchOptions say which command serves the protocol on its standard streams.
type LaunchOptions struct {
	// Argv is the command: a program, looked up in PATH unless it has a slash, and
	// its arguments. Required.
	Argv []string
	// Dir is where it starts; empty is the directory of this program.
	Dir string
	// Env is its whole environment; nil is that of this program.
	Env []string
	// Stderr gets what it says on standard error, from a goroutine of its own until
	// the command has ended; nil drops it.
	Stderr io.Writer
	// Patience is how long it may take to end when its standard input has, before it
	// is killed with its process group. 0 is DefaultLaunchPatience.
	Patience time.Duration
}

// CommandEndedError says that a command that was started for a connection has ended.
type CommandEndedError struct {
	// Command is its name, without arguments.
	Command string
	// Exit is how it ended, as "exit status 3" or "signal: killed".
	Exit string
	// Stderr is the end of what it said on standard error; may be empty.
	Stderr string
}

func (e *CommandEndedError) Error() string {
	text := fmt.Sprintf("the command %s has ended (%s)", e.Command, e.Exit)
	if e.Stderr != "" {
		text += ", and said: " + e.Stderr
	}
	return text
}

// NoServerError says that a command that was started for a connection does not serve
// the protocol on its standard streams.
type NoServerError struct {
	// Command is its name, without arguments.
	Command string
	// Output is the beginning of what it said on standard output, at most 100 bytes;
	// may be empty.
	Output string
	// Err is what the handshake failed with.
	Err error
}

func (e *NoServerError) Error() string {
	said := "nothing"
	if e.Output != "" {
		said = strconv.Quote(e.Output)
	}
	return fmt.Sprintf("%v; on standard output the command %s said %s, and not what a server of the exec-server protocol says", e.Err, e.Command, said)
}

// Unwrap returns Err.
func (e *NoServerError) Unwrap() error { return e.Err }

// Launch starts a command as a transport. Closing that ends the command's standard
// input, waits for the command to end, and kills its process group if it takes too
// long. ctx bounds nothing but the start.
func Launch(ctx context.Context, options LaunchOptions) (jsonrpc.Transport, error) {
	if len(options.Argv) == 0 {
		return nil, errors.New("failed to launch a server: Argv is empty: name a command")
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if options.Patience == 0 {
		options.Patience = DefaultLaunchPatience
	}
	l := &launched{options: options, name: filepath.Base(options.Argv[0]), heard: make(chan struct{}), ended: make(chan struct{})}
	if err := l.start(); err != nil {
		return nil, fmt.Errorf("failed to launch a server: %w", err)
	}
	return l, nil
}

// launched is a command whose standard streams are a transport.
type launched struct {
	*jsonrpc.Stdio
	options LaunchOptions
	name    string
	command *exec.Cmd
	output  *os.File // its standard output
	head    head
	tail    tail
	tasks   sync.WaitGroup
	closing sync.Once
	closed  error

	heard chan struct{} // closed when all of its standard error was read
	ended chan struct{} // closed when it has ended, and its standard error is read or given up
	exit  string        // how it ended; written before that
}

func (l *launched) start() (err error) {
	var opened []*os.File
	defer func() {
		for _, file := range opened { // what the command has of them is its own
			err = errors.Join(err, file.Close())
		}
	}()
	pipe := func() (r, w *os.File) {
		r, w, pipeErr := os.Pipe()
		err = errors.Join(err, pipeErr)
		return r, w
	}
	output, theirOutput := pipe()
	complaint, theirComplaint := pipe()
	theirInput, input := pipe()
	if err != nil {
		for _, file := range []*os.File{output, theirOutput, complaint, theirComplaint, theirInput, input} {
			if file != nil {
				opened = append(opened, file)
			}
		}
		return err
	}
	opened = []*os.File{theirOutput, theirComplaint, theirInput}
	l.command = exec.Command(l.options.Argv[0], l.options.Argv[1:]...)
	l.command.Dir, l.command.Env = l.options.Dir, l.options.Env
	l.command.Stdin, l.command.Stdout, l.command.Stderr = theirInput, theirOutput, theirComplaint
	l.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := l.command.Start(); err != nil {
		opened = append(opened, output, complaint, input)
		return err
	}
	l.output = output
	l.Stdio = jsonrpc.NewStdio(interruptible{output, &l.head}, input, jsonrpc.StdioOptions{CloseTimeout: l.options.Patience})
	l.tasks.Go(func() {
		defer close(l.heard)
		l.listen(complaint)
	})
	l.tasks.Go(func() { l.await(complaint) })
	return nil
}

// interruptible is a file whose Close makes a Read return that blocks, and leaves it
// open: who writes to it is not to fail for that.
type interruptible struct {
	*os.File
	head *head // of what was read
}

// Read implements io.Reader.
func (f interruptible) Read(p []byte) (int, error) {
	n, err := f.File.Read(p)
	f.head.add(p[:n])
	return n, err
}

func (f interruptible) Close() error { return f.SetReadDeadline(time.Unix(1, 0)) }

// listen passes on what the command says on standard error.
func (l *launched) listen(complaint *os.File) {
	var to io.Writer = &l.tail
	if l.options.Stderr != nil {
		to = io.MultiWriter(&l.tail, l.options.Stderr)
	}
	if _, err := io.Copy(to, complaint); err != nil {
		_, _ = io.Copy(&l.tail, complaint) // the writer has failed, and the command is not to block
	}
	_ = complaint.Close() // it was only read
}

// await waits until the command has ended. What it has started may go on.
func (l *launched) await(complaint *os.File) {
	_ = l.command.Wait() // how it ended is in its state
	l.exit = l.command.ProcessState.String()
	soon := time.Now().Add(outputPatience)
	_ = complaint.SetReadDeadline(soon) // what was closed needs none
	_ = l.output.SetReadDeadline(soon)
	timer := time.NewTimer(2 * outputPatience) // a writer may take its time
	defer timer.Stop()
	select {
	case <-l.heard:
	case <-timer.C:
	}
	close(l.ended)
}

// Receive implements jsonrpc.Transport.
func (l *launched) Receive() ([]byte, error) {
	message, err := l.Stdio.Receive()
	var large jsonrpc.TooLarge
	if err == nil || errors.As(err, &large) || errors.Is(err, jsonrpc.ErrClosed) {
		return message, err
	}
	timer := time.NewTimer(l.options.Patience)
	defer timer.Stop()
	select {
	case <-l.ended:
		return nil, &CommandEndedError{Command: l.name, Exit: l.exit, Stderr: l.tail.String()}
	case <-timer.C:
		return nil, fmt.Errorf("the command %s has closed its standard output: %v", l.name, err)
	}
}

// explain says of a handshake that failed what the command said, unless that is an
// answer of a server.
func (l *launched) explain(err error) error {
	if _, answered := errors.AsType[*jsonrpc.Error](err); answered {
		return err
	}
	return &NoServerError{Command: l.name, Output: l.head.String(), Err: err}
}

// Peer implements jsonrpc.Transport.
func (l *launched) Peer() string { return "exec-server command " + l.name }

// Close implements jsonrpc.Transport. The end of the command's input tells it what
// codes tell a websocket.
func (l *launched) Close(code int, reason string) error {
	l.closing.Do(func() { l.closed = l.close(code, reason) })
	return l.closed
}

func (l *launched) close(code int, reason string) error {
	err := l.Stdio.Close(code, reason)
	timer := time.NewTimer(l.options.Patience)
	defer timer.Stop()
	select {
	case <-l.ended:
	case <-timer.C:
		// It was not waited for yet, or only just: its group is still its own.
		_ = syscall.Kill(-l.command.Process.Pid, syscall.SIGKILL)
	}
	l.tasks.Wait()
	return errors.Join(err, l.output.Close())
}

// head keeps the beginning of what is added to it.
type head struct {
	mu   sync.Mutex
	kept []byte // guarded by mu
}

func (h *head) add(p []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.kept = append(h.kept, p[:min(len(p), keptOutput-len(h.kept))]...)
}

func (h *head) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return string(h.kept)
}

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	kept []byte // guarded by mu
}

// Write implements io.Writer. It keeps all of p that there is room for.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, p...)
	if over := len(t.kept) - keptStderr; over > 0 {
		t.kept = append(t.kept[:0], t.kept[over:]...)
	}
	return len(p), nil
}

// String returns it as one line of text.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := bytes.FieldsFunc(t.kept, func(r rune) bool { return r == '\n' || r == '\r' })
	return strings.ToValidUTF8(string(bytes.Join(lines, []byte("; "))), "")
}
