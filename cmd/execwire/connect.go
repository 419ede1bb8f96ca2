package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/daemon"
	"github.com/execwire/execwire/internal/config"
)

// serverVariable names the server when --server does not.
const serverVariable = "EXECWIRE_SERVER"

// connectFlags say which server a command talks to, and how.
type connectFlags struct {
	server string
}

// addConnectFlags adds the flags that every command has that talks to a
// server.
func addConnectFlags(command *cobra.Command, flags *connectFlags) {
	f := command.Flags()
	f.StringVar(&flags.server, "server", os.Getenv(serverVariable),
		"the `URL` of the server, grpc://HOST:PORT or unix:///PATH (default $"+serverVariable+", else none)")
	f.Lookup("server").DefValue = ""
}

// connect reaches the server that flags name, or makes one inside this program
// if they name none. The returned function ends the connection, and the server
// with its processes if it is ours. Give the error to [explainDial].
func connect(ctx context.Context, flags connectFlags) (*client.Client, func(), error) {
	if flags.server != "" {
		c, err := client.Dial(ctx, flags.server)
		if err != nil {
			return nil, nil, err
		}
		return c, func() { _ = c.Close() }, nil
	}
	cfg, err := config.Load("", os.Environ())
	if err != nil {
		return nil, nil, err
	}
	cfg.Principals = "" // nobody else can reach it
	d, err := daemon.New(cfg, daemon.Options{Version: buildVersion(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, nil, fmt.Errorf("failed to start a server in this program: %w", err)
	}
	return client.New(d.Conn()), func() { _ = d.Close() }, nil
}

// explainDial says why there is no server, and what to do.
func explainDial(err error) error {
	var dial *client.DialError
	if !errors.As(err, &dial) {
		return &exitError{code: codeFailed, err: err}
	}
	hint := "start a server with: execwire serve"
	if dial.URL != "grpc://127.0.0.1:7420" {
		hint += " --listen " + dial.URL
	}
	why := dial.Err.Error()
	var errno syscall.Errno
	if errors.As(err, &errno) {
		why = errno.Error()
	}
	return &exitError{code: codeFailed, err: fmt.Errorf("cannot reach %s: %s", dial.URL, why), hint: hint}
}
