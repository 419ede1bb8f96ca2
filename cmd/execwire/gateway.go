package main

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/daemon"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/observe"
)

// defaultGatewayListen is where a gateway listens when it is not told where.
const defaultGatewayListen = daemon.DefaultWebsocketListenURL

type gatewayFlags struct {
	connect             connectFlags
	listen              []string
	config              string
	logFormat, logLevel string
	logLines            int
	clients             clientFlags
}

func newGatewayCommand(std streams) *cobra.Command {
	var flags gatewayFlags
	command := &cobra.Command{
		Use:   "gateway --upstream URL [--listen URL]... [--config FILE]",
		Short: "Let JSON-RPC clients use a server elsewhere",
		Long: `gateway accepts clients that speak the JSON-RPC of exec-server, as serve does at
ws://, wss:// and stdio, and has a server elsewhere do what they ask. It runs
nothing itself, and has no state: sessions and processes are the server's, and live
on when the gateway ends, for their grace.

It needs a server to begin with, one that knows the gateway by what it shows, and
waits some seconds if none answers. When the server is lost later the gateway stays
and connects again; until then /readyz says 503 and new clients are refused. Clients
that were connected are told to try again (1013), and resume their sessions.

With a table of principals (principals_file) each client is looked up in it, and
calls are made on behalf of it, which the server has to allow the gateway by
on_behalf_of. Without, all clients are for the server whom the gateway is: give
them doors of their own if they must not share one.

Settings and flags for the doors are those of serve; the setting listen is not
looked at. SIGHUP is ignored. SIGTERM and SIGINT disconnect the clients and end the gateway.`,
		Example: `  execwire gateway --upstream grpcs://build.example.org:7420 --token-file /etc/execwire/gateway.token
  execwire gateway --upstream unix:///run/execwire.sock --listen stdio`,
		Args: noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			return runGateway(command, flags, std)
		},
	}
	f := command.Flags()
	f.StringVar(&flags.connect.server, "upstream", "", "the `URL` of the server, grpc://HOST:PORT, grpcs://HOST:PORT or unix:///PATH")
	f.StringArrayVar(&flags.listen, "listen", nil,
		"where to accept clients: `URL` is ws://HOST:PORT, wss://HOST:PORT (with TLS) or stdio; may be repeated (default "+defaultGatewayListen+")")
	f.StringVar(&flags.config, "config", "", "a TOML `file` with settings")
	f.StringVar(&flags.logFormat, "log-format", "text", "text or json")
	f.StringVar(&flags.logLevel, "log-level", "info", "debug, info, warn or error")
	f.IntVar(&flags.logLines, "log-lines", observe.DefaultLines, "lines of one kind that the log has in 10s, and how many others there were; 0 is all")
	addCredentialFlags(command, &flags.connect)
	addClientFlags(command, &flags.clients)
	return command
}

func runGateway(command *cobra.Command, flags gatewayFlags, std streams) error {
	if flags.connect.server == "" {
		return usageError(command, errors.New("name the server with --upstream"))
	}
	logger, err := observe.NewLogger(std.err, observe.Format(flags.logFormat), flags.logLevel, flags.logLines)
	if err != nil {
		return usageError(command, err)
	}
	if err := keepSecrets(); err != nil {
		return err
	}
	cfg, err := config.Load(flags.config, os.Environ(), func(cfg *config.Config) {
		if cfg.Listen = flags.listen; len(cfg.Listen) == 0 {
			cfg.Listen = []string{defaultGatewayListen}
		}
		flags.clients.lay(command, cfg)
	})
	if err != nil {
		return explainWebsocket(command, err)
	}
	defer observe.IgnoreHangups(logger)()
	config.WarnOfVariables(logger, config.UnknownVariables(os.Environ()))
	ctx, _, stop := stopSignals(logger, nil)
	defer stop()
	upstream, err := awaitUpstream(ctx, client.Connect, flags.connect)
	if err != nil {
		return explainDial(err)
	}
	defer func() { _ = upstream.Close() }()
	if err := expectKnown(ctx, client.New(upstream)); err != nil {
		return err
	}
	mem := keepMemory()
	defer mem.close()
	g, err := daemon.NewGateway(cfg, upstream, daemon.GatewayOptions{
		Logger: logger, OnListen: tellURLs(cfg, logger, std.out), OnChange: mem.changed,
	})
	if err != nil {
		return explainWebsocket(command, err)
	}
	return g.Serve(ctx)
}

const (
	// upstreamPatience is how long a gateway waits for its server, which may be
	// starting, too.
	upstreamPatience = 5 * time.Second
	// upstreamPause is between two looks for it.
	upstreamPause = 100 * time.Millisecond
)

var errNoUpstream = errors.New("the server did not answer in time")

// awaitUpstream calls connect, which is that of package client, until the server is
// there.
func awaitUpstream[C any](
	ctx context.Context, connect func(context.Context, string, ...client.Option) (C, error), flags connectFlags,
) (C, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, upstreamPatience, errNoUpstream)
	defer cancel()
	for {
		conn, err := connect(ctx, flags.server, flags.options()...)
		absent := errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOENT)
		if err == nil || !absent || errors.As(err, new(*client.CredentialError)) {
			return conn, err
		}
		pause := time.NewTimer(upstreamPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return conn, err
		}
	}
}

// expectKnown returns an error if the server does not know who this gateway is,
// which would let clients in whom it cannot serve.
func expectKnown(ctx context.Context, upstream *client.Client) error {
	ctx, cancel := context.WithTimeoutCause(ctx, upstreamPatience, errNoUpstream)
	defer cancel()
	_, err := upstream.Describe(ctx)
	switch client.Reason(err) {
	case execwirev1.ErrorReason_ERROR_REASON_UNAUTHENTICATED, execwirev1.ErrorReason_ERROR_REASON_TOO_MANY_FAILED_ATTEMPTS:
		return &exitError{code: codeFailed, err: err, hint: doorHint(err)}
	}
	return nil
}
