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
	"github.com/execwire/execwire/internal/backoff"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/flags"
	"github.com/execwire/execwire/internal/observe"
)

// defaultGatewayURL is the default of execwire gateway --listen.
const defaultGatewayURL = "ws://127.0.0.1:7420"

type gatewayFlags struct {
	connect connectFlags
	log     *flags.Log
}

func newGatewayCommand(std streams) *cobra.Command {
	var options gatewayFlags
	command := &cobra.Command{
		Use:   "gateway --upstream URL [--listen URL]... [--config FILE]",
		Short: "Serve clients of JSON-RPC and HTTP with another server",
		Long: `gateway accepts clients of the exec-server JSON-RPC, of Connect, gRPC-Web and JSON over
HTTP, and of files over HTTP, as serve does on ws://, wss://, unix:// and stdio, and
forwards their requests to another server. It runs no processes and stores no state:
sessions and processes belong to the server, and outlive the gateway for their grace
period. Clients of gRPC connect to the server itself.

At its start it waits up to 5 seconds for the server, which must accept the
credentials of the gateway. When the connection to the server is lost later, the
gateway reconnects; until then /readyz answers 503 and new clients are refused.
Connections of clients are closed with code 1013; clients can connect again and
resume their sessions.

With a table of principals (principals_file) each client is authenticated, and its
calls are made on behalf of its principal; the server must allow that by
on_behalf_of. Without a table all clients are one principal to the server: run
several gateways if clients must not share a principal.

Settings and flags for the listeners are those of serve, with --tls-cert and --tls-key
for wss://; the setting listen is ignored in files and the environment. --token-file and
--upstream-tls-* are for the connection to the server. SIGHUP makes the gateway read its
configuration again, as execwire reload does for a server; the log says what has
changed, or why nothing has. SIGTERM and SIGINT disconnect the clients and end the
gateway.` + settingsHelp,
		Example: `  execwire gateway --upstream tls://build.example.org:7420 --token-file /etc/execwire/gateway.token
  execwire gateway --upstream unix:///run/execwire.sock --listen stdio`,
		Args: noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			return runGateway(command, options, std)
		},
	}
	f := command.Flags()
	f.StringVar(&options.connect.server, "upstream", "", "the `URL` of the server, tcp://HOST:PORT, tls://HOST:PORT or unix:///PATH")
	addTokenFlag(f, &options.connect)
	addTLSFlags(f, &options.connect, "upstream-tls-", "EXECWIRE_UPSTREAM_TLS_")
	addSettingFlags(f,
		"the `URL` to listen on: ws://HOST:PORT, wss://HOST:PORT (with TLS), unix:///PATH or stdio; may be repeated (default "+defaultGatewayURL+")",
		tlsUsages, clientUsages)
	options.log = flags.AddServerLog(f)
	return command
}

func runGateway(command *cobra.Command, options gatewayFlags, std streams) error {
	if options.connect.server == "" {
		return usageError(command, errors.New("name the server with --upstream"))
	}
	logger, err := startLog(command, options.log, std)
	if err != nil {
		return err
	}
	listen := []string{defaultGatewayURL}
	cfg, _, err := loadSettings(command, listen)
	if err != nil {
		return err
	}
	environ := os.Environ()
	load := func() (config.Config, error) {
		cfg, _, err := readSettings(command, environ, listen)
		return cfg, err
	}
	hangups := observe.NotifyHangups(logger, observe.Starting)
	defer hangups.Stop()
	config.WarnOfVariables(logger, config.Settings(), os.Environ())
	ctx, _ := stopSignals(logger, nil)
	upstream, err := awaitUpstream(ctx, client.Connect, options.connect)
	if err != nil {
		return explainDial(err)
	}
	defer func() { _ = upstream.Close() }()
	if err := checkAuthenticated(ctx, client.New(upstream)); err != nil {
		return err
	}
	g, err := daemon.NewGateway(cfg, upstream, daemon.GatewayOptions{
		Logger: logger, OnListen: announceURLs(cfg, logger, std.out), OnChange: tuneMemory().changed, LoadConfig: load,
	})
	if err != nil {
		return explainWebsocket(command, err)
	}
	hangups.Handle(func() { _, _ = g.Reload() }) // it logs errors
	return g.Serve(ctx)
}

const (
	// upstreamTimeout is how long a gateway waits for its server, which may be
	// starting.
	upstreamTimeout = 5 * time.Second
	// upstreamInterval is the time between attempts.
	upstreamInterval = 100 * time.Millisecond
)

var errNoUpstream = errors.New("the server did not answer in time")

// awaitUpstream calls connect until the server listens.
func awaitUpstream[C any](
	ctx context.Context, connect func(context.Context, string, ...client.Option) (C, error), flags connectFlags,
) (C, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, upstreamTimeout, errNoUpstream)
	defer cancel()
	for {
		conn, err := connect(ctx, flags.server, flags.options()...)
		absent := errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOENT)
		if !absent || errors.As(err, new(*client.CredentialError)) || !backoff.Pause(ctx, upstreamInterval) {
			return conn, err
		}
	}
}

// checkAuthenticated returns an error if the server does not authenticate the gateway,
// which could serve no client.
func checkAuthenticated(ctx context.Context, upstream *client.Client) error {
	ctx, cancel := context.WithTimeoutCause(ctx, upstreamTimeout, errNoUpstream)
	defer cancel()
	_, err := upstream.Describe(ctx)
	switch client.Reason(err) {
	case execwirev1.ErrorReason_ERROR_REASON_UNAUTHENTICATED, execwirev1.ErrorReason_ERROR_REASON_TOO_MANY_FAILED_ATTEMPTS:
		return explain(err, nil)
	}
	return nil
}
