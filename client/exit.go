package client

import (
	"syscall"
	"time"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// Exit says how a process ended and what was received of it.
type Exit struct {
	// ProcessID is the process.
	ProcessID string
	// Code is what the process passed to exit, when Signal is 0 and the cause
	// is not EXIT_CAUSE_LOST.
	Code int
	// Signal is what killed the process, or 0.
	Signal syscall.Signal
	// Cause is why it ended.
	Cause execwirev1.ExitCause
	// WallTime is how long it ran, by the server's clock.
	WallTime time.Duration
	// Usage is what it used; nil when the server did not say.
	Usage *execwirev1.ResourceUsage
	// StdoutBytes, StderrBytes and TerminalBytes are how much it wrote, what
	// was dropped included.
	StdoutBytes, StderrBytes, TerminalBytes uint64
	// DroppedBytes is exactly how much of that was not received; see
	// RunOptions.OnGap.
	DroppedBytes uint64
	// SandboxDenied tells that the process was confined and seems to have failed for
	// want of what its sandbox denies it.
	SandboxDenied bool
	// Resumed is how often the connection was lost and the process taken up
	// again.
	Resumed int
}

// ShellCode returns the exit status a shell would show: the code, 128+n for
// signal n, or 255 when the operating system did not say.
func (e Exit) ShellCode() int {
	switch {
	case e.Signal != 0:
		return 128 + int(e.Signal)
	case e.Cause == execwirev1.ExitCause_EXIT_CAUSE_LOST:
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
