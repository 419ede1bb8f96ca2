package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/daemon"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/observe"
)

type forwardFlags struct {
	connect             connectFlags
	listen              []string
	untilStdinCloses    bool
	logFormat, logLevel string
}

func newForwardCommand(std streams) *cobra.Command {
	var flags forwardFlags
	command := &cobra.Command{
		Use:   "forward (--server URL | --hub URL --executor ID) --listen URL... [flags]",
		Short: "Let gRPC clients on this host use a server elsewhere",
		Long: `forward accepts clients of gRPC on this host and passes what they say to a server
elsewhere, and back, without reading it. With a hub that is an executor behind a
relay, which clients in any language then reach by a local address.

It connects to the server first, and ends if that fails. Then the URL of every
listener is printed on stdout, one per line, and each client gets a connection to
the server of its own. When one is lost its client is disconnected, and connects
again and resumes when it likes; other clients do not notice.

A unix socket can be used by its owner alone. A port of loopback can be used by the
programs of that user and of root, and of those that EXECWIRE_LOOPBACK_USERS names:
all of them are then for the server whom this command is. The token is for the hub;
other servers take it from the clients themselves.

SIGHUP is ignored. SIGTERM and SIGINT disconnect the clients and end the forward, and so does the end
of stdin with --until-stdin-closes, for programs that start it.`,
		Example: `  execwire forward --hub https://hub.example.org --executor build-1 --token-file ann.token --listen unix:///run/user/1000/build-1.sock
  execwire forward --server grpcs://build.example.org:7420 --listen grpc://127.0.0.1:0 --until-stdin-closes`,
		Args: noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			return forward(command, flags, std)
		},
	}
	addConnectFlags(command, &flags.connect)
	server := command.Flags().Lookup("server") // which has to be elsewhere, and speak gRPC
	server.Usage = "the `URL` of the server, grpc://HOST:PORT, grpcs://HOST:PORT, unix:///PATH or relay+wss://HOST/executor/ID?role=harness (default $" + serverVariable + ", else none)"
	f := command.Flags()
	f.StringArrayVar(&flags.listen, "listen", nil,
		"where to accept clients: `URL` is unix:///PATH, or grpc://HOST:PORT (loopback; port 0 takes a free one); may be repeated")
	f.BoolVar(&flags.untilStdinCloses, "until-stdin-closes", false, "end when stdin ends, too")
	f.StringVar(&flags.logFormat, "log-format", "text", "text or json")
	f.StringVar(&flags.logLevel, "log-level", "info", "debug, info, warn or error")
	return command
}

func forward(command *cobra.Command, flags forwardFlags, std streams) error {
	switch {
	case flags.connect.server == "" || flags.connect.server == daemon.LocalURL:
		return usageError(command, errors.New("name the server with --server, or with --hub and --executor"))
	case len(flags.listen) == 0:
		return usageError(command, errors.New("say where clients come with --listen: unix:///PATH or grpc://127.0.0.1:PORT"))
	}
	logger, err := observe.NewLogger(std.err, observe.Format(flags.logFormat), flags.logLevel, observe.DefaultLines)
	if err != nil {
		return usageError(command, err)
	}
	if err := keepSecrets(); err != nil {
		return err
	}
	cfg, err := config.Load("", os.Environ(), func(cfg *config.Config) { cfg.Listen = flags.listen })
	if err != nil {
		return err
	}
	defer observe.IgnoreHangups(logger)()
	server, err := client.NewTransport(flags.connect.server, flags.connect.options()...)
	if err != nil {
		return explainTransport(err)
	}
	f, err := daemon.NewForward(cfg, server, daemon.ForwardOptions{
		Logger: logger, OnListen: func(url string) { fmt.Fprintln(std.out, url) },
	})
	if err != nil {
		return err
	}
	ctx, _, stop := stopSignals(logger, nil)
	defer stop()
	if flags.untilStdinCloses {
		var forget func()
		if ctx, forget, err = untilEnd(ctx, std.in); err != nil {
			return err
		}
		defer forget()
	}
	if err := expectAnswer(ctx, flags.connect); err != nil || ctx.Err() != nil {
		return err
	}
	return f.Serve(ctx)
}

// explainTransport says what to do about a server that connections cannot lead to.
func explainTransport(err error) error {
	exit := &exitError{code: codeFailed, err: err}
	if errors.As(err, new(*client.URLError)) {
		exit.hint = "clients of JSON-RPC are for: execwire gateway"
	}
	return exit
}

// expectAnswer returns an error if the server does not speak gRPC, unless it was
// told to stop meanwhile.
func expectAnswer(ctx context.Context, flags connectFlags) error {
	c, err := client.Dial(ctx, flags.server, flags.options()...)
	if err == nil {
		err = c.Close()
	}
	if err == nil || ctx.Err() != nil {
		return nil
	}
	return explainDial(err)
}
