// Package terminal connects the terminal and the signals of this program to a process.
package terminal

import (
	"context"
	"errors"
	"os"
	"sync"
	"syscall"

	"golang.org/x/term"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// Options configure how this program's terminal is connected to a process.
type Options struct {
	In, Out, Err *os.File // the standard streams

	Terminal bool // the process has a terminal
	Stdin    bool // forward input
	Redraw   bool // the process existed before and must redraw
	// Hangup, if set, is closed when this program's terminal is gone; otherwise the
	// process is signalled.
	Hangup chan struct{}
	// NoWaitDescendants terminates the descendants of an exited process instead of
	// waiting for the end of their output.
	NoWaitDescendants bool
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
	defer keys.restore()

	report := NewLossReport(how.Err)
	defer report.End()
	s := newSignalForwarder(how, keys, cancel)
	options.Resize, options.Signals, options.Terminate = s.resize, s.signals, s.terminate
	onStarted := options.OnStarted
	options.OnStarted = func(process *execwirev1.Process) {
		keys.raw()
		if onStarted != nil {
			onStarted(process)
		}
	}
	options.OnExited = func() { close(s.exited) }
	options.OnLost = func(error) {
		// Without raw mode, Ctrl-C sends a signal again, which interrupts.
		keys.restore()
		s.lost.Store(true)
		report.Begin()
	}
	options.OnResumed = func() {
		report.Resumed()
		s.lost.Store(false)
		keys.raw()
	}
	options.Stdin = keys.input(options.Stdin)
	if how.Redraw {
		s.redraw()
	}
	s.begin()
	exit, err = run(ctx, options)
	return exit, s.end(), err
}

// Size returns the size of the first of these files that is a terminal, or nil if none is
// one.
func Size(files ...*os.File) *execwirev1.TerminalSize {
	for _, f := range files {
		columns, rows, err := term.GetSize(int(f.Fd()))
		if err == nil && columns > 0 && rows > 0 {
			return &execwirev1.TerminalSize{Rows: uint32(rows), Columns: uint32(columns)}
		}
	}
	return nil
}

// keyboard is the terminal at stdin, whose input goes to the process while it is in raw
// mode. The zero value is no terminal, and its methods do nothing. Its methods may be
// called concurrently.
type keyboard struct {
	file *os.File // nil without a terminal
	out  *os.File // the screen, perhaps

	mu     sync.Mutex
	saved  *term.State // in raw mode; guarded by mu
	screen func()      // restores the screen; guarded by mu
}

// newKeyboard returns the keyboard of a run: stdin, if both stdin and the process have
// a terminal.
func newKeyboard(how Options) *keyboard {
	if !how.Terminal || !how.Stdin || !term.IsTerminal(int(how.In.Fd())) {
		return &keyboard{}
	}
	return &keyboard{file: how.In, out: how.Out}
}

// raw enables raw mode.
func (k *keyboard) raw() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.file == nil || k.saved != nil {
		return
	}
	// Without raw mode, the terminal is used as it is.
	k.saved, _ = term.MakeRaw(int(k.file.Fd()))
	k.screen = rawScreen(k.out)
}

// restore restores the mode of the terminal. Calling it again does nothing.
func (k *keyboard) restore() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.saved == nil {
		return
	}
	_ = term.Restore(int(k.file.Fd()), k.saved) // this fails if the terminal is gone
	k.saved = nil
	k.screen()
}

// isRaw reports whether keys are passed to the process.
func (k *keyboard) isRaw() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.saved != nil
}
