package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/daemon"
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

// upgradeOnSignal replaces this program by the one that is installed in its place at each
// SIGUSR2, until ctx ends.
func upgradeOnSignal(ctx context.Context, d *daemon.Daemon, logger *slog.Logger) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGUSR2)
	for {
		select {
		case <-signals:
			if _, err := d.BeginUpgrade(ctx, "SIGUSR2 "+rand.Text(), ""); err != nil {
				logger.Error("an upgrade was refused", "error", err)
			}
		case <-ctx.Done():
			return
		}
	}
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
