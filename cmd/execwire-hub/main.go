// Command execwire-hub is the hub of a relay: the registry of executors and the
// rendezvous at which harnesses reach them.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/execwire/execwire/internal/buildinfo"
	"github.com/execwire/execwire/internal/commands"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/flags"
	"github.com/execwire/execwire/internal/observe"
	"github.com/execwire/execwire/internal/systemd"
	"github.com/execwire/execwire/relay/hub"
)

// Exit codes.
const (
	codeFailed = 1
	codeUsage  = 2
)

func main() { os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr)) }

// usageError is an invalid command line.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }

func (e *usageError) Unwrap() error { return e.err }

// errInvalid ends the command after it has printed what is wrong.
var errInvalid = errors.New("the configuration file is invalid")

// execute runs the command line and returns the exit code.
func execute(arguments []string, out, errOut io.Writer) int {
	command := newCommand(out, errOut)
	command.SetArgs(arguments)
	command.SetOut(out)
	command.SetErr(errOut)
	_, err := commands.CheckName(command, arguments)
	if err != nil {
		err = &usageError{err}
	} else {
		err = command.Execute()
	}
	if err == nil {
		return 0
	}
	if errors.Is(err, errInvalid) {
		return codeFailed
	}
	fmt.Fprintf(errOut, "execwire-hub: %v\n", err)
	if errors.As(err, new(*usageError)) {
		fmt.Fprintln(errOut, "  see: execwire-hub --help")
		return codeUsage
	}
	return codeFailed
}

func newCommand(out, errOut io.Writer) *cobra.Command {
	var log *flags.Log
	command := &cobra.Command{
		Use:   "execwire-hub [--listen URL]... [--config FILE]",
		Short: "Run a hub",
		Long: `execwire-hub runs a hub until SIGTERM or SIGINT: the registry that executors register
with (execwire serve --remote URL --executor-id ID), and the rendezvous where clients
reach them (execwire run --hub URL --executor ID). Both connect to the hub by
websocket. The hub routes their data without parsing it.

It prints the URL of every listener on stdout, one per line, when it accepts
connections. The log goes to stderr. Settings come from the configuration file, the
environment (EXECWIRE_HUB_ and the setting's name in upper case) and flags; later
ones override. docs/hub.md lists them. Keys and tokens are in files. To accept
connections from other hosts a hub needs a certificate, and a table of principals
with the executors that each may act as (act_as_executors) and connect to
(connect_to_executors).

SIGHUP makes the hub read its configuration and the files that settings name again;
the log says what has changed, or why nothing has. Nothing is disconnected.

Every setting is a flag, too, with - for _: --stream-grace 1m. Lists are separated by
commas, or flags are repeated. execwire-hub config example lists the settings.`,
		Example: `  execwire-hub
  execwire-hub --listen http://127.0.0.1:0 --log-format json
  execwire-hub --listen https://0.0.0.0:7430 --tls-cert hub.pem --tls-key hub.key --principals-file principals.toml`,
		Version:       buildinfo.Get().String(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(command *cobra.Command, arguments []string) error {
			if len(arguments) > 0 {
				return &usageError{commands.UnknownCommand(command, arguments[0])}
			}
			return nil
		},
		RunE: func(command *cobra.Command, _ []string) error { return run(command.Flags(), log, out, errOut) },
	}
	usage := func(_ *cobra.Command, err error) error { return &usageError{err} }
	command.SetFlagErrorFunc(func(command *cobra.Command, err error) error {
		return usage(command, commands.ExplainFlag(command, err))
	})
	command.AddCommand(
		commands.NewConfig(commands.Program{
			Name: "execwire-hub", Command: "execwire-hub", Settings: config.HubSettings(),
			AddFlags: addFlags,
			Load: func(command *cobra.Command) (any, config.Sources, error) {
				cfg, sources, err := load(command.Flags())
				return &cfg, sources, err
			},
			Check: config.CheckHubFile, Usage: usage, Invalid: errInvalid,
		}),
		commands.NewCompletion(command, "", usage), commands.NewMan(buildinfo.Get().Version, usage))
	addFlags(command.Flags())
	log = flags.AddServerLog(command.Flags())
	return command
}

// addFlags adds --config and all flags for settings.
func addFlags(f *pflag.FlagSet) {
	f.String("config", "", "a TOML `file` with settings")
	flags.AddSettings(f, config.HubSettings(), map[string]string{
		"listen":             "the `URL` to listen on: https://HOST:PORT, or http://HOST:PORT on loopback (port 0 takes a free one); may be repeated (default http://127.0.0.1:7430)",
		"tls-cert":           "the `file` with the certificate chain of https listeners, as PEM",
		"tls-key":            "the `file` with its private key, as PEM",
		"tls-ca":             "the `file` with the authorities whose client certificates are accepted, as PEM (default none)",
		"principals-file":    "the `file` with the table of principals",
		"public-url":         "the `URL` of the hub for other hosts, https://HOST, if it differs from the listener",
		"allowed-hosts":      "a further `name` of the hub in the Host header of requests; may be repeated",
		"preview-domain":     "serve ports of executors as https://PORT--EXECUTOR.DOMAIN/ with this `domain`",
		"presence-directory": "store the presence of executors in this `directory`, by embedded NATS",
		"allow-http":         "also listen on http:// beyond loopback, where tokens travel in plain text",
	})
}

// load returns the configuration with flags of addFlags.
func load(f *pflag.FlagSet) (config.Hub, config.Sources, error) {
	file, err := f.GetString("config")
	if err != nil {
		return config.Hub{}, nil, err
	}
	cfg, sources, err := readSettings(f, file)
	if err != nil {
		if text, used := flags.Explain(f, err); used {
			err = &usageError{errors.New(text)}
		}
	}
	return cfg, sources, err
}

// readSettings is load without explanations of errors.
func readSettings(f *pflag.FlagSet, file string) (config.Hub, config.Sources, error) {
	return config.LoadHub(file, os.Environ(), func(cfg *config.Hub) {
		if f.Changed("presence-directory") {
			cfg.Presence = config.PresenceNATS
		}
		flags.Apply(f, cfg)
	})
}

func run(f *pflag.FlagSet, log *flags.Log, out, errOut io.Writer) error {
	service, err := systemd.Inherit()
	if err != nil {
		return err
	}
	logger, err := log.Logger(errOut)
	if err != nil {
		return &usageError{err}
	}
	notify := func(state string) {
		if err := service.Notify(state); err != nil {
			logger.Error(err.Error())
		}
	}
	hangups := observe.NotifyHangups(logger, observe.Starting)
	defer hangups.Stop()
	cfg, _, err := load(f)
	if err != nil {
		return err
	}
	config.WarnOfVariables(logger, config.HubSettings(), os.Environ())
	h, err := hub.New(cfg, hub.Options{
		Logger: logger, Inherited: service.Sockets, Version: buildinfo.Get().Version,
		OnListen: func(url string) { fmt.Fprintln(out, url) },
		OnReady:  func() { notify(systemd.Ready) },
	})
	if err != nil {
		return err
	}
	hangups.Handle(func() {
		h.Reload(func() (config.Hub, error) {
			cfg, _, err := readSettings(f, f.Lookup("config").Value.String())
			return cfg, err
		})
	})
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	defer systemd.AfterDone(ctx, func() {
		logger.Info("stopping")
		notify(systemd.Stopping)
		stop() // a second signal terminates the program
	})()
	return h.Serve(ctx)
}
