// Package terminal connects the terminal and the signals of this program to a process.
package terminal

import (
	"context"
	"errors"
	"os"
	"syscall"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/screen"
	"github.com/execwire/execwire/internal/tty"
)

// Options configure how this program's terminal is connected to a process.
type Options struct {
	In, Out, Err *os.File // the standard streams

	Terminal bool // the process has a terminal
	Stdin    bool // forward input
	Redraw   bool // the process existed before and must redraw
	// Repaint is written to Out, a terminal, when the process is owned, before its output: what its
	// terminal shows.
	Repaint []byte
	// Hangup, if set, is closed when this program's terminal is gone; otherwise the
	// process is signalled.
	Hangup chan struct{}
	// NoWaitDescendants terminates the descendants of an exited process instead of
	// waiting for the end of their output.
	NoWaitDescendants bool
	// OnResize is called, in another goroutine, with each size that is sent; nil calls nothing.
	OnResize func(*execwirev1.TerminalSize)
	// GuardianSignals receives the signals of the guardian of this program; nil without
	// one.
	GuardianSignals <-chan syscall.Signal
}

// ErrInterrupted ends a run that the user interrupted.
var ErrInterrupted = errors.New("interrupted")

// Run calls run with options that connect this program's terminal and signals to the
// process. It always restores the terminal. killed is the signal that the user repeated
// to kill the process, or 0.
func Run(
	ctx context.Context, options client.RunOptions, how Options,
	run func(context.Context, client.RunOptions) (client.Exit, error),
) (exit client.Exit, killed syscall.Signal, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	keys := newKeyboard(how)
	defer keys.Restore()

	report := NewLossReport(how.Err)
	defer report.End()
	s := newSignalForwarder(how, keys, cancel)
	if how.Terminal && tty.Is(how.Out) {
		s.shown = newMirror(options.Stdout, how.Out, s.measure())
		options.Stdout = s.shown
	}
	options.Resize, options.Signals, options.Terminate = s.resize, s.signals, s.terminate
	onStarted := options.OnStarted
	started := false
	options.OnStarted = func(process *execwirev1.Process) {
		keys.Raw()
		started = true
		if s.shown != nil {
			s.shown.paint(how.Repaint)
		}
		if onStarted != nil {
			onStarted(process)
		}
	}
	options.OnExited = func() { close(s.exited) }
	report.before = func() {
		// Without raw mode, Ctrl-C sends a signal again, which interrupts.
		keys.Restore()
		s.reportLost()
	}
	options.OnLost = func(error) {
		report.keyboard = keys.IsRaw()
		report.Begin()
	}
	options.OnResumed = func() {
		if !report.Resumed() {
			return
		}
		s.lost.Store(false)
		keys.Raw()
		if s.shown != nil {
			s.shown.restore() // over the report, and keys that were pressed meanwhile
		}
	}
	options.Stdin = keys.Input(options.Stdin)
	if how.Redraw {
		s.redraw()
	}
	s.begin()
	exit, err = run(ctx, options)
	if started && how.Terminal && (err != nil || exit.Signal != 0) && tty.Is(how.Out) {
		// The program has not put it back.
		_, _ = how.Out.Write(screen.Reset())
	}
	return exit, s.end(), err
}

// Size returns the size of the first of these files that is a terminal, or nil if none is
// one.
func Size(files ...*os.File) *execwirev1.TerminalSize {
	if rows, columns := tty.Size(files...); rows > 0 {
		return &execwirev1.TerminalSize{Rows: rows, Columns: columns}
	}
	return nil
}

// newKeyboard returns the keyboard of a run: stdin, if both stdin and the process have
// a terminal.
func newKeyboard(how Options) *tty.Keyboard {
	if !how.Terminal || !how.Stdin || !tty.Is(how.In) {
		return &tty.Keyboard{}
	}
	return tty.NewKeyboard(how.In, how.Out)
}
