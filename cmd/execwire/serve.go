package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/execwire/execwire/daemon"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/listen"
	"github.com/execwire/execwire/internal/observe"
	"github.com/execwire/execwire/internal/process"
	"github.com/execwire/execwire/relay/executor"
)

type serveFlags struct {
	listen              []string
	config              string
	logFormat, logLevel string
	logLines            int
	clients             clientFlags
	remote              executorFlags
	untilStdinCloses    bool
}

func newServeCommand(std streams) *cobra.Command {
	var flags serveFlags
	command := &cobra.Command{
		Use:   "serve [--listen URL]... [--remote URL --executor-id ID] [--config FILE]",
		Short: "Run a server",
		Long: `serve runs a server until it gets SIGTERM or SIGINT. It then starts nothing new,
lets processes end for the shutdown grace, terminates what is left and exits; a
second signal terminates at once. With --until-stdin-closes the end of stdin does
what the first signal does, so that a program that starts a server leaves none
behind, however it ends.

The server runs under a guardian, this process: should the server be killed, the
guardian ends all its processes, and should the guardian be killed, the server
does. guardian=off does without. SIGTERM and SIGINT stop it, a second one at once;
SIGHUP is logged and changes nothing.

Clients of gRPC come by grpc://, grpcs:// and unix://, those that speak the
JSON-RPC of exec-server by ws://, wss:// and stdio. With stdio there is one, at the
other end of stdin and stdout; when stdin ends its session does, and so does a
server that has no other listener.

With --remote the server is reached through a relay, as an executor of the hub at
URL, to which it connects from where it is: clients name the hub and the id. Without
--listen nobody can reach it otherwise. It connects again whenever the connection is
lost, and what runs goes on. A hub that refuses it ends it, as another server does
that connects with its id; docs/remote.md has the rest.

The URL of every listener is printed on stdout, one per line, when it accepts
clients, or told in the log if stdout is a client's; the log goes to stderr.
Settings come from the configuration file, then from the environment (EXECWIRE_ and
the setting's name in upper case), then from flags. Keys and tokens are in files of
their own, which settings name. To be reached from other hosts a server needs to
know who is let in, by a table of principals or for websockets by --ws-auth, and
should have a certificate; docs/security.md says how.`,
		Example: `  execwire serve
  execwire serve --listen unix:///run/user/1000/execwire.sock
  execwire serve --listen grpc://127.0.0.1:0 --log-format json
  execwire serve --listen stdio
  execwire serve --remote https://hub.example.org --executor-id build-1 --remote-token-file /etc/execwire/hub.token
  execwire serve --listen ws://127.0.0.1:7421 --ws-auth capability-token --ws-token-file /etc/execwire/ws.token`,
		Args: noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			return serve(command, flags, std)
		},
	}
	f := command.Flags()
	f.StringArrayVar(&flags.listen, "listen", nil,
		"where to accept clients: `URL` is grpc://HOST:PORT (loopback; port 0 takes a free one), grpcs://HOST:PORT (with TLS), unix:///PATH, ws://HOST:PORT, wss://HOST:PORT (with TLS), stdio or off; may be repeated (default grpc://127.0.0.1:7420 and ws://127.0.0.1:7421)")
	addExecutorFlags(command, &flags.remote)
	addClientFlags(command, &flags.clients)
	f.BoolVar(&flags.untilStdinCloses, "until-stdin-closes", false, "end as with SIGTERM when stdin ends, too")
	f.StringVar(&flags.config, "config", "", "a TOML `file` with settings")
	f.StringVar(&flags.logFormat, "log-format", "text", "text or json")
	f.StringVar(&flags.logLevel, "log-level", "info", "debug, info, warn or error")
	f.IntVar(&flags.logLines, "log-lines", observe.DefaultLines, "lines of one kind that the log has in 10s, and how many others there were; 0 is all")
	return command
}

func serve(command *cobra.Command, flags serveFlags, std streams) error {
	guardian, err := process.Guarded()
	if err != nil {
		return err
	}
	logger, err := observe.NewLogger(std.err, observe.Format(flags.logFormat), flags.logLevel, flags.logLines)
	if err != nil {
		return usageError(command, err)
	}
	if err := keepSecrets(); err != nil {
		return err
	}
	cfg, err := config.Load(flags.config, os.Environ(), func(cfg *config.Config) {
		if listen := slices.DeleteFunc(flags.listen, isEmpty); len(listen) > 0 {
			cfg.Listen = listen
		}
		flags.clients.lay(command, cfg)
		flags.remote.lay(command, cfg)
	})
	if err != nil {
		return explainRemoteFlags(command, explainWebsocket(command, err))
	}
	if flags.untilStdinCloses && has(cfg.Listen, listen.SchemeStdio) {
		return usageError(command, errors.New("--until-stdin-closes is not for stdio, whose client ends the server by itself"))
	}
	credentials, err := findRemoteCredentials(cfg, logger)
	if err != nil {
		return err
	}
	if guardian == nil && cfg.Guardian == "on" {
		return guard(process.Guarding{Cgroups: cfg.Cgroup, ReadsInput: flags.untilStdinCloses || has(cfg.Listen, listen.SchemeStdio)})
	}
	defer observe.IgnoreHangups(logger)()
	config.WarnOfVariables(logger, config.UnknownVariables(os.Environ()))
	forgetRemoteSecrets(cfg)
	return explainRemote(explainWebsocket(command, serveUntilStopped(cfg, credentials, logger, guardian, flags.untilStdinCloses, std)))
}

// isEmpty is of a --listen that leaves it to the server.
func isEmpty(url string) bool { return url == "" }

// tellURLs returns what tells the URLs of listeners: on stdout, if no client has
// that.
func tellURLs(cfg config.Config, logger *slog.Logger, out io.Writer) func(url string) {
	if has(cfg.Listen, listen.SchemeStdio) {
		return func(url string) { logger.Info("listening", "url", url) }
	}
	return func(url string) { fmt.Fprintln(out, url) }
}

// serveUntilStopped serves until a signal, the end of the guardian, should there be
// one, or that of stdin, if it is looked at.
func serveUntilStopped(cfg config.Config, credentials executor.Credentials, logger *slog.Logger, guardian *process.GuardianWatch, untilStdinCloses bool, std streams) error {
	gone, forget := watchGuardian(guardian, func(syscall.Signal) {}) // it has a group of its own
	defer forget()
	mem := keepMemory()
	defer mem.close()
	d, err := daemon.New(cfg, daemon.Options{
		Version:  buildVersion(),
		Logger:   logger,
		Guarded:  guardian != nil,
		OnChange: mem.changed,

		RemoteCredentials: credentials,
		// Nothing else here starts processes.
		AdoptOrphans: true,
		OnListen:     tellURLs(cfg, logger, std.out),
		OnDrain: func(processes int) {
			logger.Info("waiting for processes to end; another signal ends them at once", "processes", processes)
		},
	})
	if err != nil {
		return err
	}
	ctx, now, stop := stopSignals(logger, gone)
	defer stop()
	if untilStdinCloses {
		var forget func()
		if ctx, forget, err = untilEnd(ctx, std.in); err != nil {
			return errors.Join(err, d.Close())
		}
		defer forget()
	}
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
