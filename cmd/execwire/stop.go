package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/cmd/execwire/internal/terminal"
)

// stopSignals returns a context that ends with the first terminating signal, and one
// that ends with the second. Both end when gone is closed, with errUnguarded. The
// signals are handled until the program ends.
func stopSignals(logger *slog.Logger, gone <-chan struct{}) (ctx, now context.Context) {
	ctx, cancel := context.WithCancelCause(context.Background())
	now, cancelNow := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		for {
			select {
			case s := <-signals:
				if ctx.Err() != nil {
					cancelNow(fmt.Errorf("got %v again", s))
					continue
				}
				logger.Info("stopping", "signal", s.String())
				cancel(fmt.Errorf("got %v", s))
			case <-gone:
				gone = nil
				logger.Error("the guardian is gone: ending all processes")
				cancelNow(errUnguarded)
				cancel(errUnguarded)
			}
		}
	}()
	return ctx, now
}

// errStdinEnded is the cause when stdin ended.
var errStdinEnded = errors.New("stdin has ended")

// untilEOF returns a context that also ends at the end of a file, whose content is
// discarded until the program ends.
func untilEOF(ctx context.Context, file *os.File) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		defer cancel(errStdinEnded)
		for {
			if _, err := io.Copy(io.Discard, file); !errors.Is(err, unix.EAGAIN) {
				return
			}
			// Another program made the open file, which both share, non-blocking.
			_, _ = unix.Poll([]unix.PollFd{{Fd: int32(file.Fd()), Events: unix.POLLIN}}, -1)
		}
	}()
	return ctx
}

// untilSignal calls do with a context that ends with a terminating signal. A second signal
// terminates the program.
func untilSignal(ctx context.Context, do func(context.Context) error) error {
	ctx, stop := signal.NotifyContext(ctx, terminal.Unignored(syscall.SIGTERM)...)
	defer stop()
	context.AfterFunc(ctx, stop)
	err := do(ctx)
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
