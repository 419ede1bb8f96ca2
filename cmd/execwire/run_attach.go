package main

import (
	"context"
	"syscall"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// attention is how this program's terminal is connected to a process.
type attention struct {
	terminal bool // the process has one
	stdin    bool // it gets what is typed here
	redraw   bool // it was there before, and is to show itself
	// hangup is closed when this program's terminal is gone, in place of telling
	// the process; nil tells the process.
	hangup chan struct{}
	// noWaitDescendants has what an exited process has left terminated, in place of
	// waiting until the output that it holds has ended.
	noWaitDescendants bool
	// passed carries the signals that the guardian of this program got; nil without
	// one.
	passed <-chan syscall.Signal
}

// attended calls run with options that connect this program's terminal and
// signals to the process. The terminal is as it was when attended returns,
// however it does. killed is the signal that the user repeated until the process was
// killed; 0 if none.
func attended(
	ctx context.Context, options client.RunOptions, how attention, std streams,
	run func(context.Context, client.RunOptions) (client.Exit, error),
) (exit client.Exit, killed syscall.Signal, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	keys := newKeyboard(how, std)
	defer keys.restore()

	report := lossReport{to: std.err}
	defer report.end()
	s := newSignalling(how, std, keys, cancel)
	options.Resize, options.Signals, options.Terminate = s.resize, s.signals, s.terminate
	options.OnStarted = func(*execwirev1.Process) { keys.raw() }
	options.OnExited = s.processExited
	options.OnLost = func(error) {
		// Without raw mode Ctrl-C is a signal again, which gives up.
		keys.restore()
		s.lost.Store(true)
		report.begin()
	}
	options.OnResumed = func() {
		report.end()
		s.lost.Store(false)
		keys.raw()
	}
	if how.redraw {
		s.redraw()
	}
	s.begin()
	defer s.end()
	exit, err = run(ctx, options)
	return exit, s.killedBy(), err
}
