// Command execwire-hub is the hub of a relay: the registry that executors
// register at, and the rendezvous where harnesses find them.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/observe"
	"github.com/execwire/execwire/relay/hub"
)

// Exit codes.
const (
	codeFailed = 1
	codeUsage  = 2
)

func main() { os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr)) }

// usageError is a mistake on the command line.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }

func (e *usageError) Unwrap() error { return e.err }

// execute runs the command line and returns the code to exit with.
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

type flags struct {
	listen              []string
	config              string
	certificate, key    string
	principals          string
	publicURL           string
	presenceDirectory   string
	allowHTTP           bool
	logFormat, logLevel string
	logLines            int
}

func newCommand(out, errOut io.Writer) *cobra.Command {
	var f flags
	command := &cobra.Command{
		Use:   "execwire-hub [--listen URL]... [--config FILE]",
		Short: "Run a hub of the relay",
		Long: `execwire-hub runs a hub until it gets SIGTERM or SIGINT: the registry that executors
register at (execwire serve --remote URL --executor-id ID), and the rendezvous where
harnesses reach them (execwire run --hub URL --executor ID), each by a websocket that
it opens itself. A hub routes what they say to each other and reads none of it.

The URL of every listener is printed on stdout, one per line, when it accepts
connections; the log goes to stderr. Settings come from the configuration file, then
from the environment (EXECWIRE_HUB_ and the setting's name in upper case), then from
flags; docs/hub.md lists them. Keys and tokens are in files of their own. To be
reached from other hosts a hub needs a certificate, and a table of principals that
says who may be which executor (act_as_executors) and who may use it
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
		RunE: func(command *cobra.Command, _ []string) error { return run(command, f, out, errOut) },
	}
	command.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usageError{err} })
	command.CompletionOptions.DisableDefaultCmd = true
	set := command.Flags()
	set.StringArrayVar(&f.listen, "listen", nil,
		"where executors and harnesses come: `URL` is https://HOST:PORT, or http://HOST:PORT on loopback (port 0 takes a free one); may be repeated (default http://127.0.0.1:7430)")
	set.StringVar(&f.config, "config", "", "a TOML `file` with settings")
	set.StringVar(&f.certificate, "tls-certificate", "", "the `file` with the certificate chain of https listeners")
	set.StringVar(&f.key, "tls-key", "", "the `file` with the key to it")
	set.StringVar(&f.principals, "principals", "", "the `file` with the table of principals")
	set.StringVar(&f.publicURL, "public-url", "", "where the hub is reached from elsewhere, if not where it listens: a `URL` as https://HOST")
	set.StringVar(&f.presenceDirectory, "presence-directory", "", "keep which executors there are in this `directory`, by embedded NATS")
	set.BoolVar(&f.allowHTTP, "allow-http", false, "listen on http:// beyond loopback, too, where tokens travel in plain text")
	set.StringVar(&f.logFormat, "log-format", "text", "text or json")
	set.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
	set.IntVar(&f.logLines, "log-lines", observe.DefaultLines, "lines of one kind that the log has in 10s, and how many others there were; 0 is all")
	return command
}

// lay lays the flags that were given over the configuration.
func (f *flags) lay(command *cobra.Command, cfg *config.Hub) {
	for name, set := range map[string]func(){
		"listen":             func() { cfg.Listen = f.listen },
		"tls-certificate":    func() { cfg.TLSCertificate = absolute(f.certificate) },
		"tls-key":            func() { cfg.TLSKey = absolute(f.key) },
		"principals":         func() { cfg.Principals = absolute(f.principals) },
		"public-url":         func() { cfg.PublicURL = f.publicURL },
		"presence-directory": func() { cfg.Presence, cfg.PresenceDirectory = config.PresenceNATS, absolute(f.presenceDirectory) },
		"allow-http":         func() { cfg.AllowHTTP = map[bool]string{true: "on", false: "off"}[f.allowHTTP] },
	} {
		if command.Flags().Changed(name) {
			set()
		}
	}
}

// absolute is a path from the root, where that can be told.
func absolute(path string) string {
	if whole, err := filepath.Abs(path); err == nil && path != "" {
		return whole
	}
	return path
}

func run(command *cobra.Command, f flags, out, errOut io.Writer) error {
	logger, err := observe.NewLogger(errOut, observe.Format(f.logFormat), f.logLevel, f.logLines)
	if err != nil {
		return &usageError{err}
	}
	defer observe.IgnoreHangups(logger)()
	cfg, err := config.LoadHub(f.config, os.Environ(), func(cfg *config.Hub) { f.lay(command, cfg) })
	if err != nil {
		return err
	}
	config.WarnOfVariables(logger, config.UnknownHubVariables(os.Environ()))
	h, err := hub.New(cfg, hub.Options{Logger: logger, OnListen: func(url string) { fmt.Fprintln(out, url) }})
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	defer context.AfterFunc(ctx, func() {
		logger.Info("stopping")
		stop() // a second signal ends the program at once
	})()
	return h.Serve(ctx)
}

// version is that of the build.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "unknown"
	}
	return info.Main.Version
}
