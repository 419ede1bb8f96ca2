package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/execwire/execwire/daemon"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/observe"
	"github.com/execwire/execwire/internal/process"
)

type serveFlags struct {
	listen              []string
	config              string
	logFormat, logLevel string
}

func newServeCommand(std streams) *cobra.Command {
	var flags serveFlags
	command := &cobra.Command{
		Use:   "serve [--listen URL]... [--config FILE]",
		Short: "Run a server",
		Long: `serve runs a server until it gets SIGTERM or SIGINT. It then starts nothing new,
lets processes end for the shutdown grace, terminates what is left and exits; a
second signal terminates at once.

The server runs under a guardian, this process: should the server be killed, the
guardian ends all its processes, and should the guardian be killed, the server
does. guardian=off does without.

The URL of every listener is printed on stdout, one per line, when it accepts
clients; the log goes to stderr. Settings come from the configuration file, then
from the environment (EXECWIRE_ and the setting's name in upper case), then from
flags. Keys and tokens are in files of their own, which settings name. To be
reached from other hosts a server needs a certificate and a table of principals;
docs/security.md says how.`,
		Example: `  execwire serve
  execwire serve --listen unix:///run/user/1000/execwire.sock
  execwire serve --listen grpc://127.0.0.1:0 --log-format json`,
		Args: noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			return serve(command, flags, std)
		},
	}
	f := command.Flags()
	f.StringArrayVar(&flags.listen, "listen", nil,
		"where to accept clients: grpc://HOST:PORT (loopback; port 0 takes a free one), grpcs://HOST:PORT (with TLS) or unix:///PATH; may be repeated (default grpc://127.0.0.1:7420)")
	f.StringVar(&flags.config, "config", "", "a TOML `file` with settings")
	f.StringVar(&flags.logFormat, "log-format", "text", "text or json")
	f.StringVar(&flags.logLevel, "log-level", "info", "debug, info, warn or error")
	return command
}

func serve(command *cobra.Command, flags serveFlags, std streams) error {
	guardian, err := process.Guarded()
	if err != nil {
		return err
	}
	logger, err := observe.NewLogger(std.err, observe.Format(flags.logFormat), flags.logLevel)
	if err != nil {
		return usageError(command, err)
	}
	if err := keepSecrets(); err != nil {
		return err
	}
	cfg, err := config.Load(flags.config, os.Environ())
	if err != nil {
		return err
	}
	if guardian == nil && cfg.Guardian == "on" {
		return guard(cfg.Cgroup)
	}
	if len(flags.listen) > 0 {
		cfg.Listen = flags.listen
	}
	return serveUntilStopped(cfg, logger, guardian, std)
}

// serveUntilStopped serves until a signal, or the end of the guardian, should
// there be one.
func serveUntilStopped(cfg config.Config, logger *slog.Logger, guardian *process.GuardianWatch, std streams) error {
	gone, forget := watchGuardian(guardian)
	defer forget()
	mem := keepMemory()
	defer mem.close()
	d, err := daemon.New(cfg, daemon.Options{
		Version:  buildVersion(),
		Logger:   logger,
		Guarded:  guardian != nil,
		OnChange: mem.changed,
		// Nothing else here starts processes.
		AdoptOrphans: true,
		OnListen:     func(url string) { fmt.Fprintln(std.out, url) },
		OnDrain: func(processes int) {
			logger.Info("waiting for processes to end; another signal ends them at once", "processes", processes)
		},
	})
	if err != nil {
		return err
	}
	ctx, now, stop := stopSignals(logger, gone)
	defer stop()
	if err := d.Serve(ctx, now); err != nil {
		return errors.Join(err, d.Close())
	}
	if cause := context.Cause(ctx); errors.Is(cause, errUnguarded) {
		return cause
	}
	return nil
}

// stopSignals returns a context that ends with the first signal to stop, and
// one that ends with the second. Both end when gone is closed, with
// errUnguarded. Calling stop gives the signals back.
func stopSignals(logger *slog.Logger, gone <-chan struct{}) (ctx, now context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	now, cancelNow := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	over := make(chan struct{})
	go func() {
		defer close(over)
		for {
			select {
			case s, open := <-signals:
				if !open {
					return
				}
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
	return ctx, now, func() {
		signal.Stop(signals)
		close(signals)
		<-over
		cancel(nil)
		cancelNow(nil)
	}
}
