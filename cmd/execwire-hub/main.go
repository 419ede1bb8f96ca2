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
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/flags"
	"github.com/execwire/execwire/internal/observe"
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

// execute runs the command line and returns the exit code.
func execute(arguments []string, out, errOut io.Writer) int {
	command := newCommand(out, errOut)
	command.SetArgs(arguments)
	command.SetOut(out)
	command.SetErr(errOut)
	err := command.Execute()
	if err == nil {
		return 0
	}
	fmt.Fprintf(errOut, "execwire-hub: %v\n", err)
	if errors.As(err, new(*usageError)) {
		fmt.Fprintln(errOut, "  see: execwire-hub --help")
		return codeUsage
	}
	return codeFailed
}

// overrides are the flags for settings. --presence-directory also selects NATS.
var overrides = flags.Overrides{
	"listen": "listen", "public-url": "public_url", "allow-http": "allow_http", "principals": "principals_file",
	"tls-certificate": "tls_certificate_file", "tls-key": "tls_key_file", "presence-directory": "presence_directory",
}

func newCommand(out, errOut io.Writer) *cobra.Command {
	var file string
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
(connect_to_executors).`,
		Example: `  execwire-hub
  execwire-hub --listen http://127.0.0.1:0 --log-format json
  execwire-hub --listen https://0.0.0.0:7430 --tls-certificate hub.pem --tls-key hub.key --principals principals.toml`,
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(_ *cobra.Command, arguments []string) error {
			if len(arguments) > 0 {
				return &usageError{fmt.Errorf("unexpected argument %q", arguments[0])}
			}
			return nil
		},
		RunE: func(command *cobra.Command, _ []string) error { return run(command.Flags(), file, log, out, errOut) },
	}
	command.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usageError{err} })
	command.CompletionOptions.DisableDefaultCmd = true
	f := command.Flags()
	f.StringArray("listen", nil,
		"the `URL` to listen on: https://HOST:PORT, or http://HOST:PORT on loopback (port 0 takes a free one); may be repeated (default http://127.0.0.1:7430)")
	f.StringVar(&file, "config", "", "a TOML `file` with settings")
	f.String("tls-certificate", "", "the `file` with the certificate chain of https listeners")
	f.String("tls-key", "", "the `file` with its private key")
	f.String("principals", "", "the `file` with the table of principals")
	f.String("public-url", "", "the `URL` of the hub for other hosts, https://HOST, if it differs from the listener")
	f.String("presence-directory", "", "store the presence of executors in this `directory`, by embedded NATS")
	f.Bool("allow-http", false, "also listen on http:// beyond loopback, where tokens travel in plain text")
	log = flags.AddServerLog(f)
	return command
}

func run(f *pflag.FlagSet, file string, log *flags.Log, out, errOut io.Writer) error {
	logger, err := log.Logger(errOut)
	if err != nil {
		return &usageError{err}
	}
	defer observe.IgnoreHangups(logger)()
	cfg, err := config.LoadHub(file, os.Environ(), func(cfg *config.Hub) {
		if f.Changed("presence-directory") {
			cfg.Presence = config.PresenceNATS
		}
		overrides.Apply(f, cfg)
	})
	if err != nil {
		return err
	}
	config.WarnOfVariables(logger, config.HubSettings(), os.Environ())
	h, err := hub.New(cfg, hub.Options{Logger: logger, OnListen: func(url string) { fmt.Fprintln(out, url) }})
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	defer context.AfterFunc(ctx, func() {
		logger.Info("stopping")
		stop() // a second signal terminates the program
	})()
	return h.Serve(ctx)
}

// version returns the version of the build.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "unknown"
	}
	return info.Main.Version
}
