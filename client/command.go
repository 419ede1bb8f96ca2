package client

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/tty"
)

// Command describes a common command line: the program is looked up in the PATH of its
// environment, no shell is involved, and it has pipes, with stdin closed.
// [Command.Request] returns the message for RunOptions and StartOptions, where further
// fields can be set. Only Argv is required.
type Command struct {
	// Argv is the program and its arguments; [Shell] makes those of a line for a shell.
	Argv []string
	// Dir is the directory to start in, on the server's machine. A relative one begins at
	// the home directory of the server's user, or of User, which is also what empty is.
	Dir string
	// User is the user to run as, by name or number on the server's machine, with :GROUP
	// after it for another group than the user's own. Empty is the server's user. See
	// StartProcessRequest.user.
	User string
	// Env are variables to set, in addition to those of InheritEnv, and overriding them.
	Env map[string]string
	// InheritEnv selects the variables that the process inherits from the server.
	// Unspecified is core: PATH, HOME, LANG and the like; ENVIRONMENT_INHERIT_NONE
	// inherits nothing.
	InheritEnv execwirev1.EnvironmentInherit

	// PipeStdin gives the process a stdin pipe for [Process.Write]. RunOptions.Stdin
	// and Communicate set it themselves.
	PipeStdin bool
	// Terminal gives the process a terminal of this size instead of pipes; nil means
	// pipes. The zero size is 24 rows of 80 columns.
	Terminal *execwirev1.TerminalSize

	// Timeout is how long the process may run; then it is killed, with cause
	// EXIT_CAUSE_TIMEOUT. 0 is no limit.
	Timeout time.Duration
	// NoOutputTimeout is how long it may write nothing; then it is killed, with cause
	// EXIT_CAUSE_NO_OUTPUT. 0 is no limit.
	NoOutputTimeout time.Duration
	// Nice is added to the nice value of the server, 1 to 39. 0 changes nothing.
	Nice int32
	// ResourceLimits are limits of setrlimit(2), each resource at most once.
	ResourceLimits []*execwirev1.ResourceLimit
	// LeaveDescendants does not kill descendants that outlive the process.
	LeaveDescendants bool
	// Sandbox confines the process; nil applies the policy of [Client.WithSandbox], if
	// any. [Sandbox.Policy] builds a policy.
	Sandbox *execwirev1.SandboxPolicy

	// SessionID is the session to start in; empty is the default session.
	SessionID string
	// ID is the id of the process in its session; empty generates one.
	ID string
	// Keep is how long the server keeps the result and output of the process from its end,
	// whether they were requested or not, as StartProcessRequest.keep; the server has a
	// maximum. 0 leaves it to the server. It is for the default session only.
	Keep time.Duration
	// Labels are used to find the process, see StartProcessRequest.labels.
	Labels map[string]string
}

// Request returns the message that starts the command. It shares nothing with c
// but Sandbox.
func (c Command) Request() *execwirev1.StartProcessRequest {
	request := &execwirev1.StartProcessRequest{
		SessionId: c.SessionID,
		ProcessId: c.ID,
		Command: &execwirev1.ProcessCommand{Command: &execwirev1.ProcessCommand_Direct{
			Direct: &execwirev1.DirectCommand{
				Argv:              slices.Clone(c.Argv),
				WorkingDirectory:  c.Dir,
				Env:               maps.Clone(c.Env),
				EnvironmentPolicy: &execwirev1.EnvironmentPolicy{Inherit: c.InheritEnv},
				Sandbox:           c.Sandbox,
			}}},
		User:             c.User,
		Labels:           maps.Clone(c.Labels),
		LeaveDescendants: c.LeaveDescendants,
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
	if c.Keep > 0 {
		request.Keep = durationpb.New(c.Keep)
	}
	limits := &execwirev1.ProcessLimits{ResourceLimits: slices.Clone(c.ResourceLimits)}
	if c.Timeout > 0 {
		limits.Timeout = durationpb.New(c.Timeout)
	}
	if c.NoOutputTimeout > 0 {
		limits.NoOutputTimeout = durationpb.New(c.NoOutputTimeout)
	}
	if c.Nice != 0 {
		limits.Nice = &c.Nice
	}
	if !proto.Equal(limits, &execwirev1.ProcessLimits{}) {
		request.Limits = limits
	}
	return request
}

// Shell returns the arguments that run a line in a shell of the server, for Command.Argv.
func Shell(line string) []string { return []string{"sh", "-c", line} }

// ExitError reports that a command did not succeed although success was required.
type ExitError struct {
	// Exit is how it ended.
	Exit Exit
	// Stderr is the end of what it wrote to stderr, at most 32 KiB.
	Stderr []byte
}

// Error describes how the command ended, without its output.
func (e *ExitError) Error() string {
	switch {
	case e.Exit.Signal != 0:
		return fmt.Sprintf("the command was ended by signal %d (%s)", int(e.Exit.Signal), signalText(e.Exit.Signal))
	case e.Exit.Cause == execwirev1.ExitCause_EXIT_CAUSE_SERVER_RESTARTED:
		return "the command ended when the server was restarted, and how is not known"
	case e.Exit.Cause == execwirev1.ExitCause_EXIT_CAUSE_LOST:
		return "the command ended, and how is not known"
	}
	return fmt.Sprintf("the command ended with code %d", e.Exit.Code)
}

// signalText describes a signal of Linux. Other systems have other signals with its number.
func signalText(signal syscall.Signal) string {
	if runtime.GOOS == "linux" {
		return signal.String()
	}
	return "SIG" + strings.TrimPrefix(execwirev1.Signal(signal).String(), "SIGNAL_")
}

// MaxOutputBytes is how much stdout or terminal output [Client.Output] and
// [Process.Communicate] collect, and as much stderr: 64 MiB each.
const MaxOutputBytes = 64 << 20

// exitErrorBytes is how much of stderr an ExitError keeps.
const exitErrorBytes = 32 << 10

// OutputSizeError reports that a process wrote more than is collected in memory.
type OutputSizeError struct {
	// LimitBytes is the limit.
	LimitBytes int
}

func (e *OutputSizeError) Error() string {
	return fmt.Sprintf("more than the %d bytes that are collected in memory: stream it with RunOptions.Stdout or Process.Events", e.LimitBytes)
}

// Output runs a command and returns its stdout or terminal output. It blocks until the
// process has closed, across lost connections as [Client.Run] does, and returns the
// same errors. If the command exits with a code other than 0, or by a signal, it
// returns the output and an [*ExitError]. More than [MaxOutputBytes] of output
// terminates the command and returns an [*OutputError] that wraps an
// [*OutputSizeError].
func (c *Client) Output(ctx context.Context, command Command) ([]byte, error) {
	var stdout limitedBuffer
	var stderr tailBuffer
	var missing uint64
	exit, err := c.Run(ctx, RunOptions{Process: command.Request(), Stdout: &stdout, Stderr: &stderr,
		OnGap: func(gap *execwirev1.OutputGap) { missing += gap.GetDroppedBytes() }})
	if err == nil && exit.ShellCode() != 0 {
		err = &ExitError{Exit: exit, Stderr: stderr.bytes()}
	}
	// Over the exec-server protocol the offsets of output after a gap are not known.
	if missing = cmp.Or(exit.DroppedBytes, missing); err == nil && missing > 0 {
		err = &MissingOutputError{DroppedBytes: missing}
	}
	return stdout.Bytes(), err
}

// Interactive runs a command at the terminal of this program, as ssh does: it has a terminal
// of the same size, its TERM unless Env has one, and gets the keys, also Ctrl-C, and each
// change of the size. PipeStdin has no effect. It blocks until the process has closed,
// across lost connections as [Client.Run] does; while the connection is lost, Ctrl-C is for
// this program again. The terminal is restored before it returns. Only one may run at a
// time.
//
// Errors are those of Run, or say that stdin and stdout are not a terminal.
func (c *Client) Interactive(ctx context.Context, command Command) (Exit, error) {
	return c.interactive(ctx, command, os.Stdin, os.Stdout)
}

func (c *Client) interactive(ctx context.Context, command Command, in, out *os.File) (Exit, error) {
	if !tty.Is(in) || !tty.Is(out) {
		return Exit{}, fmt.Errorf("failed to run at the terminal: %w: use Run or Start", tty.ErrNone)
	}
	size := func() *execwirev1.TerminalSize {
		rows, columns := tty.Size(out)
		return &execwirev1.TerminalSize{Rows: rows, Columns: columns}
	}
	sizes := make(chan *execwirev1.TerminalSize, 1)
	defer tty.OnResize(func() {
		select {
		case <-sizes: // it was not sent yet
		default:
		}
		if now := size(); now.GetRows() > 0 {
			sizes <- now
		}
	})()
	if command.Terminal == nil {
		command.Terminal = size()
	}
	env := map[string]string{}
	if name, ok := os.LookupEnv("TERM"); ok {
		env["TERM"] = name
	}
	maps.Copy(env, command.Env)
	command.Env = env
	keys := tty.NewKeyboard(in, out)
	defer keys.Restore()
	return c.Run(ctx, RunOptions{
		Process: command.Request(), Stdin: keys.Input(in), Stdout: out, Resize: sizes,
		OnStarted: func(*execwirev1.Process) { keys.Raw() },
		OnLost:    func(error) { keys.Restore() },
		OnResumed: keys.Raw,
	})
}

// MissingOutputError reports that output which was to be collected completely has a
// gap: some of it was evicted.
type MissingOutputError struct {
	// DroppedBytes is how much is missing, at most.
	DroppedBytes uint64
}

func (e *MissingOutputError) Error() string {
	return fmt.Sprintf("%d bytes of output are missing: they were evicted before they were read", e.DroppedBytes)
}

// limitedBuffer is a writer that keeps up to MaxOutputBytes.
type limitedBuffer struct{ bytes.Buffer }

func (g *limitedBuffer) Write(p []byte) (int, error) {
	if g.Len()+len(p) > MaxOutputBytes {
		return 0, &OutputSizeError{LimitBytes: MaxOutputBytes}
	}
	return g.Buffer.Write(p)
}

// tailBuffer is a writer that keeps the last exitErrorBytes of its input.
type tailBuffer struct{ data []byte }

func (t *tailBuffer) Write(p []byte) (int, error) {
	t.data = append(t.data, p...)
	if len(t.data) > 4*exitErrorBytes {
		t.data = append([]byte(nil), t.bytes()...)
	}
	return len(p), nil
}

func (t *tailBuffer) bytes() []byte { return t.data[max(0, len(t.data)-exitErrorBytes):] }

// Exit describes how a process ended and what was received from it.
type Exit struct {
	// ProcessID is the process.
	ProcessID string
	// Code is the exit code, valid when Signal is 0 and HasStatus.
	Code int
	// Signal is the signal that killed the process, by its number of Linux, or 0.
	Signal syscall.Signal
	// Cause is why it ended.
	Cause execwirev1.ExitCause
	// WallTime is how long it ran, by the clock of the server.
	WallTime time.Duration
	// Usage is its resource usage; nil if unknown.
	Usage *execwirev1.ResourceUsage
	// StdoutBytes, StderrBytes and TerminalBytes count its output, including dropped
	// bytes.
	StdoutBytes, StderrBytes, TerminalBytes uint64
	// DroppedBytes is exactly how many of those were not received; see
	// RunOptions.OnGap.
	DroppedBytes uint64
	// SandboxDenied is whether the process was confined and apparently failed because
	// its sandbox denied access.
	SandboxDenied bool
	// Resumed is how often the process was resumed after a lost connection.
	Resumed int
}

// OK reports whether the process exited by itself with code 0.
func (e Exit) OK() bool {
	return e.Cause == execwirev1.ExitCause_EXIT_CAUSE_EXITED && e.Signal == 0 && e.Code == 0
}

// HasStatus reports whether the code or signal is known: the cause is neither EXIT_CAUSE_LOST
// nor EXIT_CAUSE_SERVER_RESTARTED.
func (e Exit) HasStatus() bool {
	return e.Cause != execwirev1.ExitCause_EXIT_CAUSE_LOST && e.Cause != execwirev1.ExitCause_EXIT_CAUSE_SERVER_RESTARTED
}

// ShellCode returns the exit status of a shell: the code, 128+n for signal n, or 255 if
// unknown.
func (e Exit) ShellCode() int {
	switch {
	case e.Signal != 0:
		return 128 + int(e.Signal)
	case !e.HasStatus():
		return 255
	default:
		return e.Code
	}
}

func newExit(record *execwirev1.ExitRecord) Exit {
	return Exit{
		Code:     int(record.GetExitCode()),
		Signal:   syscall.Signal(record.GetSignal()),
		Cause:    record.GetCause(),
		WallTime: record.GetWallTime().AsDuration(),
		Usage:    record.GetUsage(),

		SandboxDenied: record.GetSandboxDenied(),
	}
}
