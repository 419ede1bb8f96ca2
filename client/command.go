package client

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// Command is a command line, as most want it: its program is looked up in the PATH
// of its environment, no shell is involved, and it has pipes of which stdin is
// closed. [Command.Request] makes the message that RunOptions and StartOptions
// take; what a Command cannot say can be set there. Only Argv is required.
type Command struct {
	// Argv is the program and its arguments.
	Argv []string
	// Dir is the directory to start in, absolute, on the server's machine. Empty
	// is "/".
	Dir string
	// Env are variables to set, beside those of Inherit or in their place.
	Env map[string]string
	// Inherit says which variables the process has from the server. Unspecified is
	// core: PATH, HOME, LANG and the like; ENVIRONMENT_INHERIT_NONE is nothing.
	Inherit execwirev1.EnvironmentInherit

	// PipeStdin gives the process input: what [Process.Write] writes. RunOptions.Stdin
	// and Communicate need not be told.
	PipeStdin bool
	// Terminal gives the process a terminal of this size in place of pipes; nil
	// does not. The zero size is 24 rows of 80 columns.
	Terminal *execwirev1.TerminalSize

	// Timeout is how long it may run; then it is killed, with cause
	// EXIT_CAUSE_TIMEOUT. 0 is no limit.
	Timeout time.Duration
	// Sandbox confines the process; nil confines nothing, or as
	// [Client.WithSandbox] does. [Sandbox.Policy] makes such a policy.
	Sandbox *execwirev1.SandboxPolicy

	// SessionID is the session to start in; empty is the default session.
	SessionID string
	// ID is the process's id in its session; empty chooses one.
	ID string
	// Labels are what to find the process by, see StartProcessRequest.labels.
	Labels map[string]string
}

// Request returns the message that starts the command. It shares nothing with c
// but Sandbox.
func (c Command) Request() *execwirev1.StartProcessRequest {
	dir := c.Dir
	if dir == "" {
		dir = "/"
	}
	request := &execwirev1.StartProcessRequest{
		SessionId: c.SessionID,
		ProcessId: c.ID,
		Command: &execwirev1.ProcessCommand{Command: &execwirev1.ProcessCommand_Direct{
			Direct: &execwirev1.DirectCommand{
				Argv:              slices.Clone(c.Argv),
				WorkingDirectory:  dir,
				Env:               maps.Clone(c.Env),
				EnvironmentPolicy: &execwirev1.EnvironmentPolicy{Inherit: c.Inherit},
				Sandbox:           c.Sandbox,
			}}},
		Labels: maps.Clone(c.Labels),
	}
	switch {
	case c.Terminal != nil:
		terminal := &execwirev1.TerminalIo{}
		if c.Terminal.GetRows() != 0 || c.Terminal.GetColumns() != 0 {
			terminal.Size = c.Terminal
		}
		request.Io = &execwirev1.ProcessIo{Io: &execwirev1.ProcessIo_Terminal{Terminal: terminal}}
	case c.PipeStdin:
		request.Io = &execwirev1.ProcessIo{Io: &execwirev1.ProcessIo_Pipes{
			Pipes: &execwirev1.PipeIo{Stdin: execwirev1.StdinMode_STDIN_MODE_PIPE}}}
	}
	if c.Timeout > 0 {
		request.Limits = &execwirev1.ProcessLimits{Timeout: durationpb.New(c.Timeout)}
	}
	return request
}

// ExitError says that a command did not succeed, where success was asked for.
type ExitError struct {
	// Exit is how it ended.
	Exit Exit
	// Stderr is the end of what it wrote to stderr, at most 32 KiB.
	Stderr []byte
}

// Error says how the command ended, and nothing of what it wrote.
func (e *ExitError) Error() string {
	switch {
	case e.Exit.Signal != 0:
		return fmt.Sprintf("the command was ended by signal %d (%v)", int(e.Exit.Signal), e.Exit.Signal)
	case e.Exit.Cause == execwirev1.ExitCause_EXIT_CAUSE_LOST:
		return "the command ended, and how is not known"
	}
	return fmt.Sprintf("the command ended with code %d", e.Exit.Code)
}

// MaxOutputBytes is how much stdout or terminal output [Client.Output] and
// [Process.Communicate] gather, and as much stderr: 64 MiB each.
const MaxOutputBytes = 64 << 20

// exitErrorBytes is how much of stderr an ExitError has.
const exitErrorBytes = 32 << 10

// OutputSizeError says that a process wrote more than is gathered in memory.
type OutputSizeError struct {
	// LimitBytes is how much that is.
	LimitBytes int
}

func (e *OutputSizeError) Error() string {
	return fmt.Sprintf("it is more than the %d bytes that are gathered in memory: pass it on with RunOptions.Stdout, or by Process.Events", e.LimitBytes)
}

// Output runs a command and returns what it wrote to stdout, or to its terminal. It
// blocks until the process has closed, across lost connections as [Client.Run]
// does, and its errors are those of Run. A command that ended with another code
// than 0, or by a signal, is an [*ExitError] beside its output. More than
// [MaxOutputBytes] of output ends the command, with an [*OutputError] that wraps
// an [*OutputSizeError].
func (c *Client) Output(ctx context.Context, command Command) ([]byte, error) {
	var stdout gathered
	var stderr tail
	exit, err := c.Run(ctx, RunOptions{Process: command.Request(), Stdout: &stdout, Stderr: &stderr})
	if err == nil && exit.ShellCode() != 0 {
		err = &ExitError{Exit: exit, Stderr: stderr.bytes()}
	}
	if err == nil && exit.DroppedBytes > 0 {
		err = &MissingOutputError{DroppedBytes: exit.DroppedBytes}
	}
	return stdout.Bytes(), err
}

// MissingOutputError says that output which was to be gathered whole is not: the
// rest was not kept any more.
type MissingOutputError struct {
	// DroppedBytes is how much is missing.
	DroppedBytes uint64
}

func (e *MissingOutputError) Error() string {
	return fmt.Sprintf("%d bytes of the output are missing: they were not kept any more when they were asked for", e.DroppedBytes)
}

// gathered is a writer that keeps what it gets, up to MaxOutputBytes.
type gathered struct{ bytes.Buffer }

func (g *gathered) Write(p []byte) (int, error) {
	if g.Len()+len(p) > MaxOutputBytes {
		return 0, &OutputSizeError{LimitBytes: MaxOutputBytes}
	}
	return g.Buffer.Write(p)
}

// tail is a writer that keeps the end of what it gets, exitErrorBytes of it.
type tail struct{ kept []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p...)
	if len(t.kept) > 4*exitErrorBytes {
		t.kept = append([]byte(nil), t.bytes()...)
	}
	return len(p), nil
}

func (t *tail) bytes() []byte { return t.kept[max(0, len(t.kept)-exitErrorBytes):] }
