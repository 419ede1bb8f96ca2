package main

import (
	"context"
	"fmt"

	"golang.org/x/term"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// attach runs the process with this program's terminal and signals connected to
// it. The terminal is as it was when attach returns, however it does.
func attach(
	ctx context.Context, server *client.Client, options client.RunOptions, flags runFlags, std streams,
) (client.Exit, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	keys := newKeyboard(flags, std)
	defer keys.restore()

	s := newSignalling(flags, std, keys, cancel)
	options.Resize, options.Signals, options.Terminate = s.resize, s.signals, s.terminate
	options.OnStarted = func(*execwirev1.Process) { keys.raw() }
	options.OnLost = func(error) {
		// Without raw mode Ctrl-C is a signal again, which gives up.
		keys.restore()
		s.lost.Store(true)
		if term.IsTerminal(int(std.err.Fd())) {
			fmt.Fprintln(std.err, "\nexecwire: connection lost, reconnecting... (Ctrl-C gives up)")
		}
	}
	options.OnResumed = func() {
		s.lost.Store(false)
		keys.raw()
	}
	s.begin()
	defer s.end()
	return server.Run(ctx, options)
}
