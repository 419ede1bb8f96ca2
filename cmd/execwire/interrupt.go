package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
)

// interruptible is a context that ends with a signal that ends this program, so
// that it can clean up. A second one ends it at once. The function gives the
// signals back.
func interruptible(ctx context.Context) (context.Context, func()) {
	list := []os.Signal{syscall.SIGTERM}
	// What nohup or a shell's & made this program ignore stays ignored.
	for _, sig := range []os.Signal{syscall.SIGINT, syscall.SIGHUP} {
		if !signal.Ignored(sig) {
			list = append(list, sig)
		}
	}
	ctx, stop := signal.NotifyContext(ctx, list...)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// interrupted is what a command fails with that ended with err, and with a signal
// if ctx is done.
func interrupted(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	ended := &exitError{code: codeInterrupted, err: errors.New("interrupted")}
	var exit *exitError
	if errors.As(err, &exit) {
		ended.hint = exit.hint
	}
	return ended
}
