package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/execwire/execwire/daemon"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/flags"
	"github.com/execwire/execwire/internal/guardian"
	"github.com/execwire/execwire/internal/listen"
	"github.com/execwire/execwire/internal/observe"
	"github.com/execwire/execwire/relay/executor"
)

type serveFlags struct {
	listen           []string
	config           string
	log              *flags.Log
	untilStdinCloses bool
}

func newServeCommand(std streams) *cobra.Command {
	var options serveFlags
	command := &cobra.Command{
		Use:   "serve [--listen URL]... [--remote URL --executor-id ID] [--config FILE]",
		Short: "Run a server",
		Long: `serve runs a server until SIGTERM or SIGINT. Then it starts no new processes, lets
existing ones end within the shutdown grace period, terminates the rest and exits. A
second signal terminates at once. With --until-stdin-closes the end of stdin works
like the first signal, so that a program that starts a server leaves none behind.

The server runs under a guardian, which is this process: if the server is killed, the
guardian kills all its processes; if the guardian is killed, the server shuts down.
The setting guardian disables it. SIGHUP is logged and ignored.

gRPC clients connect to grpc://, grpcs:// and unix://; clients of the exec-server
JSON-RPC to ws://, wss:// and stdio. stdio serves a single client on stdin and
stdout: when stdin ends its session is closed, and a server without other listeners
exits.

With --remote the server connects to the hub at URL, and clients reach it through the
hub by the id of --executor-id. Without --listen it has no listeners. It reconnects
after a lost connection, and processes continue. The server exits if the hub refuses
it, or if another server connects with its id; see docs/remote.md.

serve prints the URL of every listener on stdout, one per line, when it accepts
clients, or logs it if a client uses stdout. The log goes to stderr. Settings come
from the configuration file, the environment (EXECWIRE_ and the setting's name in
upper case) and flags; later ones override earlier ones. Keys and tokens are in files
that settings name. To accept clients from other hosts a server needs a table of
principals, or --ws-auth for websockets, and should have a certificate; see
docs/security.md.`,
		Example: `  execwire serve
  execwire serve --listen unix:///run/user/1000/execwire.sock
  execwire serve --listen grpc://127.0.0.1:0 --log-format json
  execwire serve --listen stdio
  execwire serve --remote https://hub.example.org --executor-id build-1 --remote-token-file /etc/execwire/hub.token
  execwire serve --listen ws://127.0.0.1:7421 --ws-auth capability-token --ws-token-file /etc/execwire/ws.token`,
		Args: noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			return serve(command, options, std)
		},
	}
	f := command.Flags()
	f.StringArrayVar(&options.listen, "listen", nil,
		"the `URL` to listen on: grpc://HOST:PORT (loopback; port 0 takes a free one), grpcs://HOST:PORT (with TLS), unix:///PATH, ws://HOST:PORT, wss://HOST:PORT (with TLS), stdio or off; may be repeated (default grpc://127.0.0.1:7420 and ws://127.0.0.1:7421)")
	f.StringVar(&options.config, "config", "", "a TOML `file` with settings")
	f.BoolVar(&options.untilStdinCloses, "until-stdin-closes", false, "also shut down when stdin ends, as with SIGTERM")
	addExecutorFlags(f)
	addClientFlags(f)
	options.log = flags.AddServerLog(f)
	return command
}

func serve(command *cobra.Command, options serveFlags, std streams) error {
	watch, err := guardian.Guarded()
	if err != nil {
		return err
	}
	logger, err := startLog(command, options.log, std)
	if err != nil {
		return err
	}
	cfg, err := config.Load(options.config, os.Environ(), func(cfg *config.Config) {
		if listen := slices.DeleteFunc(options.listen, isEmpty); len(listen) > 0 {
			cfg.Listen = listen
		}
		for _, group := range []flags.Overrides{websocketOverrides, clientOverrides, remoteOverrides} {
			group.Apply(command.Flags(), cfg)
		}
	})
	if err != nil {
		return explainRemoteFlags(command, explainWebsocket(command, err))
	}
	if options.untilStdinCloses && hasListener(cfg.Listen, listen.SchemeStdio) {
		return usageError(command, errors.New("--until-stdin-closes is not for stdio, whose client ends the server by itself"))
	}
	credentials, err := findRemoteCredentials(cfg, logger)
	if err != nil {
		return err
	}
	if watch == nil && cfg.Guardian == "on" {
		return guard(guardian.Options{Cgroups: cfg.Cgroup, ReadsInput: options.untilStdinCloses || hasListener(cfg.Listen, listen.SchemeStdio)})
	}
	defer observe.IgnoreHangups(logger)()
	config.WarnOfVariables(logger, config.Settings(), os.Environ())
	unsetRemoteSecrets(cfg)
	return explainRemote(explainWebsocket(command, serveUntilStopped(cfg, credentials, logger, watch, options.untilStdinCloses, std)))
}

// startLog returns the logger of a command that serves, and protects its memory.
func startLog(command *cobra.Command, log *flags.Log, std streams) (*slog.Logger, error) {
	logger, err := log.Logger(std.err)
	if err != nil {
		return nil, usageError(command, err)
	}
	return logger, protectMemory()
}

// isEmpty matches an empty --listen, which selects the default.
func isEmpty(url string) bool { return url == "" }

// announceURLs returns a function that reports the URLs of listeners: on stdout, unless a
// client uses it.
func announceURLs(cfg config.Config, logger *slog.Logger, out io.Writer) func(url string) {
	if hasListener(cfg.Listen, listen.SchemeStdio) {
		return func(url string) { logger.Info("listening", "url", url) }
	}
	return func(url string) { fmt.Fprintln(out, url) }
}

// serveUntilStopped serves until a signal, the end of the guardian, or the end of stdin
// if requested.
func serveUntilStopped(cfg config.Config, credentials executor.Credentials, logger *slog.Logger, watch *guardian.Watch, untilStdinCloses bool, std streams) error {
	d, err := daemon.New(cfg, daemon.Options{
		Version:  buildVersion(),
		Logger:   logger,
		Guarded:  watch != nil,
		OnChange: tuneMemory().changed,

		RemoteCredentials: credentials,
		// Nothing else in this program starts processes.
		AdoptOrphans: true,
		OnListen:     announceURLs(cfg, logger, std.out),
		OnDrain: func(processes int) {
			logger.Info("waiting for processes to end; another signal ends them at once", "processes", processes)
		},
	})
	if err != nil {
		return err
	}
	ctx, now := stopSignals(logger, watch.Gone())
	if untilStdinCloses {
		ctx = untilEOF(ctx, std.in)
	}
	if err := d.Serve(ctx, now); err != nil {
		return errors.Join(err, d.Close())
	}
	if cause := context.Cause(ctx); errors.Is(cause, errUnguarded) {
		return cause
	}
	return nil
}
