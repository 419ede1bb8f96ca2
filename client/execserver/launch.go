package execserver

import (
	"cmp"
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
	"time"

	"github.com/execwire/execwire/client/internal/commandgroup"
	"github.com/execwire/execwire/internal/jsonrpc"
	"github.com/execwire/execwire/internal/secretfile"
)

const (
	// exitTimeout is how long a command may take to exit after the end of its stdin,
	// before it is killed with its group.
	exitTimeout = 5 * time.Second
	// outputTimeout is how long descendants of a command that has exited may keep its
	// output open.
	outputTimeout = time.Second
	// keptStderr is how much of the end of stderr an error quotes.
	keptStderr = 2 << 10
	// keptStdout is how much of the beginning of stdout an error quotes.
	keptStdout = 100
)

// LaunchCommand is a command that serves the exec-server protocol on its stdio.
type LaunchCommand struct {
	// Argv is the program and its arguments. A name without a slash is looked up in
	// PATH. Required.
	Argv []string
	// Dir is its working directory; empty is that of this program.
	Dir string
	// Env is its whole environment, as NAME=value; nil is that of this program without
	// EXECWIRE_TOKEN.
	Env []string
	// Stderr receives its stderr, from another goroutine, until the connection is
	// closed. nil discards it, except for the last lines in the error when the command
	// has exited.
	Stderr io.Writer

	exitTimeout time.Duration // 0 is the constant; for tests
}

// CommandEndedError reports that the command of a connection has exited.
type CommandEndedError struct {
	// Command is its name, without arguments.
	Command string
	// Exit is how it exited, as "exit status 3" or "signal: killed".
	Exit string
	// Stderr is the end of its stderr; it may be empty.
	Stderr string
}

func (e *CommandEndedError) Error() string {
	text := fmt.Sprintf("the command %s has exited (%s)", e.Command, e.Exit)
	if e.Stderr != "" {
		text += ": " + e.Stderr
	}
	return text
}

// NoServerError reports that the command of a connection does not serve the protocol on
// its stdio.
type NoServerError struct {
	// Command is its name, without arguments.
	Command string
	// Output is the beginning of its stdout, at most 100 bytes; it may be empty.
	Output string
	// Err is the error of the handshake.
	Err error
}

func (e *NoServerError) Error() string {
	printed := "nothing"
	if e.Output != "" {
		printed = strconv.Quote(e.Output)
	}
	return fmt.Sprintf("%v; the command %s printed %s instead of messages of the exec-server protocol", e.Err, e.Command, printed)
}

// Unwrap returns Err.
func (e *NoServerError) Unwrap() error { return e.Err }

// Launch starts a command as a transport. Closing the transport ends the command's stdin,
// waits for the command to exit, and kills it if it takes too long: with its process group;
// on Windows with its descendants. ctx limits only the start.
func Launch(ctx context.Context, options LaunchCommand) (jsonrpc.Transport, error) {
	if len(options.Argv) == 0 {
		return nil, errors.New("failed to launch a server: Argv is empty: name a command")
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	options.exitTimeout = cmp.Or(options.exitTimeout, exitTimeout)
	l := &launched{options: options, name: filepath.Base(options.Argv[0]), exited: make(chan struct{}),
		head: excerpt{limit: keptStdout}, tail: excerpt{limit: keptStderr, isTail: true}}
	if err := l.start(); err != nil {
		return nil, fmt.Errorf("failed to launch a server: %w", err)
	}
	return l, nil
}

// launched is a command whose stdio is a transport.
type launched struct {
	*jsonrpc.Stdio
	options    LaunchCommand
	name       string
	command    *exec.Cmd
	group      *commandgroup.Group
	stdout     *os.File
	head, tail excerpt // of stdout and stderr
	tasks      sync.WaitGroup
	closing    sync.Once
	closed     error

	exited chan struct{} // closed when it has exited and its stderr was read
	exit   string        // how it exited; written before that
}

func (l *launched) start() error {
	l.command = exec.Command(l.options.Argv[0], l.options.Argv[1:]...)
	l.command.Dir, l.command.Env = l.options.Dir, l.options.Env
	if l.options.Env == nil {
		l.command.Env = secretfile.WithoutToken(l.command.Environ()) // with PWD for Dir
	}
	l.command.SysProcAttr = commandgroup.Attributes()
	l.command.WaitDelay = outputTimeout
	l.command.Stderr = &l.tail
	if l.options.Stderr != nil {
		l.command.Stderr = io.MultiWriter(&l.tail, &lenientWriter{to: l.options.Stderr})
	}
	stdin, err := l.command.StdinPipe()
	if err != nil {
		return err
	}
	// Not StdoutPipe, which Wait closes while it may be read.
	stdout, theirs, err := os.Pipe()
	if err != nil {
		return errors.Join(err, stdin.Close())
	}
	l.command.Stdout = theirs
	err = errors.Join(l.run(), theirs.Close())
	if err != nil {
		return errors.Join(err, stdout.Close())
	}
	l.stdout = stdout
	l.Stdio = jsonrpc.NewStdio(interruptible{stdout, &l.head}, stdin, jsonrpc.StdioOptions{CloseTimeout: l.options.exitTimeout})
	l.tasks.Go(l.await)
	return nil
}

// run starts the command in its group.
func (l *launched) run() error {
	if err := l.command.Start(); err != nil {
		return err
	}
	group, err := commandgroup.New(l.command.Process)
	if err != nil {
		_, _ = l.command.Process.Kill(), l.command.Wait() // it never ran
		return err
	}
	l.group = group
	return nil
}

// await waits until the command has exited. Its descendants may continue.
func (l *launched) await() {
	_ = l.command.Wait() // the state has the details
	l.exit = l.command.ProcessState.String()
	_ = l.stdout.SetReadDeadline(time.Now().Add(outputTimeout)) // a closed file needs none
	close(l.exited)
}

// awaitExit blocks until the command has exited, or returns false after the timeout.
func (l *launched) awaitExit() bool {
	timer := time.NewTimer(l.options.exitTimeout)
	defer timer.Stop()
	select {
	case <-l.exited:
		return true
	case <-timer.C:
		return false
	}
}

// Receive implements jsonrpc.Transport.
func (l *launched) Receive() ([]byte, error) {
	message, err := l.Stdio.Receive()
	var large jsonrpc.TooLarge
	switch {
	case err == nil || errors.As(err, &large) || errors.Is(err, jsonrpc.ErrClosed):
		return message, err
	case l.awaitExit():
		return nil, l.endedError()
	}
	return nil, fmt.Errorf("the command %s has closed its standard output: %v", l.name, err)
}

// Send implements jsonrpc.Transport. A command that has exited reads nothing, and that it
// has explains more than the failed write.
func (l *launched) Send(message []byte) error {
	err := l.Stdio.Send(message)
	if err == nil || errors.Is(err, jsonrpc.ErrClosed) || !l.awaitExit() {
		return err
	}
	return l.endedError()
}

// endedError reports that the command has exited. awaitExit has returned true.
func (l *launched) endedError() error {
	lines := strings.FieldsFunc(l.tail.String(), func(r rune) bool { return r == '\n' || r == '\r' })
	return &CommandEndedError{Command: l.name, Exit: l.exit, Stderr: strings.ToValidUTF8(strings.Join(lines, "; "), "")}
}

// explain adds the stdout of the command to the error of a handshake, unless that is a
// server's answer.
func (l *launched) explain(err error) error {
	if _, answered := errors.AsType[*jsonrpc.Error](err); answered {
		return err
	}
	return &NoServerError{Command: l.name, Output: l.head.String(), Err: err}
}

// Peer implements jsonrpc.Transport.
func (l *launched) Peer() string { return "exec-server command " + l.name }

// Close implements jsonrpc.Transport. The end of stdin stands for the close code.
func (l *launched) Close(code int, reason string) error {
	l.closing.Do(func() {
		err := l.Stdio.Close(code, reason)
		if !l.awaitExit() {
			// It was not waited for, or only just: the process group is still its own.
			l.group.Kill()
		}
		l.tasks.Wait()
		l.group.Close()
		if closeErr := l.stdout.Close(); !errors.Is(closeErr, os.ErrClosed) { // interruptible may have closed it
			err = errors.Join(err, closeErr)
		}
		l.closed = err
	})
	return l.closed
}

// interruptible is a file whose Close interrupts a blocked Read and leaves the file open,
// so that the program that writes to it does not fail.
type interruptible struct {
	*os.File
	head *excerpt // of what was read
}

// Read implements io.Reader.
func (f interruptible) Read(p []byte) (int, error) {
	n, err := f.File.Read(p)
	_, _ = f.head.Write(p[:n]) // never fails
	return n, err
}

// Close implements io.Closer. Pipes of Windows have no deadlines: there it closes the file.
func (f interruptible) Close() error {
	err := f.SetReadDeadline(time.Unix(1, 0))
	if errors.Is(err, os.ErrNoDeadline) {
		return f.File.Close()
	}
	return err
}

// lenientWriter ignores the errors of a writer: the command continues without it.
type lenientWriter struct {
	to     io.Writer
	failed bool
}

// Write implements io.Writer.
func (w *lenientWriter) Write(p []byte) (int, error) {
	if !w.failed {
		_, err := w.to.Write(p)
		w.failed = err != nil
	}
	return len(p), nil
}

// excerpt keeps the beginning or the end of what is written to it.
type excerpt struct {
	limit  int
	isTail bool

	mu   sync.Mutex
	kept []byte // guarded by mu
}

// Write implements io.Writer.
func (e *excerpt) Write(p []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.isTail {
		e.kept = append(e.kept, p[:min(len(p), e.limit-len(e.kept))]...)
		return len(p), nil
	}
	e.kept = append(e.kept, p...)
	if over := len(e.kept) - e.limit; over > 0 {
		e.kept = append(e.kept[:0], e.kept[over:]...)
	}
	return len(p), nil
}

func (e *excerpt) String() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return string(e.kept)
}
