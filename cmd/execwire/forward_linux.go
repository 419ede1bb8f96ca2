package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/daemon"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/flags"
	"github.com/execwire/execwire/internal/observe"
)

type forwardFlags struct {
	connect          connectFlags
	untilStdinCloses bool
	log              *flags.Log
}

func newForwardCommand(std streams) *cobra.Command {
	var options forwardFlags
	command := &cobra.Command{
		Use:   "forward (--server URL | --hub URL --executor ID) --listen URL... [flags]",
		Short: "Forward gRPC connections of this host to another server",
		Long: `forward accepts gRPC clients on this host and passes their connections to another
server, without parsing them. With a hub the server is an executor, which clients in
any language reach by a local address. To reach ports of processes, use
execwire port-forward.

It connects to the server first, and fails if it cannot. Then it prints the URL of
every listener on stdout, one per line. Each client gets its own connection to the
server. When that is lost the client is disconnected; it can connect again and
resume. Other clients are not affected.

Only its owner can use a unix socket. A loopback port can be used by programs of that
user, of root and of those in --loopback-users or EXECWIRE_LOOPBACK_USERS. Confined
processes are refused, with a token too. To the server, all others are the user of
this command. The token is for the hub; clients send their own tokens to other servers.

SIGHUP is ignored: settings come from flags and variables, and the token and
certificates are read again for each connection to the server. SIGTERM and SIGINT disconnect the clients and end the command; so
does the end of stdin with --until-stdin-closes, for programs that start it.`,
		Example: `  execwire forward --hub https://hub.example.org --executor build-1 --token-file ann.token --listen unix:///run/user/1000/build-1.sock
  execwire forward --server tls://build.example.org:7420 --listen tcp://127.0.0.1:0 --until-stdin-closes`,
		Args: noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			return forward(command, options, std)
		},
	}
	// It must be another server, with gRPC.
	addConnectFlags(command, &options.connect, serverHelp+" or relay+wss://HOST/executor/ID?role=harness", "none")
	f := command.Flags()
	flags.AddSettings(f, forwardSettings(), map[string]string{
		"listen":                   "the `URL` to listen on: unix:///PATH, or tcp://HOST:PORT (loopback; port 0 takes a free one); may be repeated",
		"loopback-users":           "a further `user` whose programs may use loopback ports, by name or number, or any; may be repeated (default same)",
		"connections-per-listener": "the most `connections` of clients of one listener at a time (default 1000)",
		"handshake-timeout":        "how long a client may take to begin, as in 30s (default 20s)",
	})
	f.BoolVar(&options.untilStdinCloses, "until-stdin-closes", false, "also end when stdin ends")
	options.log = flags.AddLog(f)
	return command
}

// forwardSettings are the settings that apply to a forward.
func forwardSettings() []config.Setting {
	names := []string{"listen", "loopback_users", "connections_per_listener", "handshake_timeout"}
	return slices.DeleteFunc(config.Settings(), func(s config.Setting) bool { return !slices.Contains(names, s.Name) })
}

func forward(command *cobra.Command, options forwardFlags, std streams) error {
	switch {
	case options.connect.server == "" || options.connect.server == localURL:
		return usageError(command, errors.New("name the server with --server, with --hub and --executor, or with a context"))
	case !command.Flags().Changed("listen"):
		return usageError(command, errors.New("name where to listen with --listen: unix:///PATH or tcp://127.0.0.1:PORT"))
	}
	logger, err := startLog(command, options.log, std)
	if err != nil {
		return err
	}
	cfg, _, err := loadSettings(command, nil)
	if err != nil {
		return err
	}
	// Flags and variables cannot change.
	defer observe.NotifyHangups(logger, "listen, loopback_users, connections_per_listener and handshake_timeout come from flags and variables, so a restart changes them; "+
		"the token and certificates are read again for each connection to the server").Stop()
	server, err := client.NewTransport(options.connect.server, options.connect.options()...)
	if err != nil {
		return explainTransport(err)
	}
	f, err := daemon.NewForward(cfg, server, daemon.ForwardOptions{
		Logger: logger, OnListen: func(url string) { fmt.Fprintln(std.out, url) },
	})
	if err != nil {
		return err
	}
	ctx, _ := stopSignals(logger, nil)
	if options.untilStdinCloses {
		ctx = untilEOF(ctx, std.in)
	}
	if err := checkReachable(ctx, options.connect); err != nil || ctx.Err() != nil {
		return err
	}
	return f.Serve(ctx)
}

// explainTransport adds a hint for a server that does not speak gRPC.
func explainTransport(err error) error {
	exit := &exitError{code: codeFailed, err: err}
	if errors.As(err, new(*client.URLError)) {
		exit.hint = "for JSON-RPC clients use: execwire gateway"
	}
	return exit
}

// checkReachable returns an error if the server does not speak gRPC, unless ctx is done
// first.
func checkReachable(ctx context.Context, flags connectFlags) error {
	c, err := client.Dial(ctx, flags.server, flags.options()...)
	if err == nil {
		err = c.Close()
	}
	if err == nil || ctx.Err() != nil {
		return nil
	}
	return flags.explain(err)
}
