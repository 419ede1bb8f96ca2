// Command embed is a program with a server inside itself: clients of gRPC come by a
// listener and, if there is a hub, by that. docs/embedding.md explains it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/daemon"
)

func main() {
	daemon.Main() // first of all: to confine something the server starts this program once more
	listen := flag.String("listen", "grpc://127.0.0.1:0", "where clients come: unix:///PATH or grpc://127.0.0.1:PORT")
	hub := flag.String("hub", "", "the URL of a hub to be reached through, too")
	id := flag.String("executor-id", "embedded", "what clients find this program by there")
	flag.Parse()
	// Nobody but this program waits for its end: a second signal ends it as usual.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	if err := run(ctx, *listen, *hub, *id); err != nil {
		fmt.Fprintln(os.Stderr, "embed:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, listen, hub, id string) error {
	if err := greet(ctx); err != nil {
		return err
	}
	cfg, err := daemon.LoadConfig("", os.Environ())
	if err != nil {
		return err
	}
	cfg.Listen = []string{listen}
	cfg.ShutdownGrace = daemon.Duration(2 * time.Second)
	options := daemon.Options{
		Version:  "embed 1.0",
		Logger:   slog.New(slog.NewTextHandler(os.Stderr, nil)),
		OnListen: func(url string) { fmt.Fprintln(os.Stdout, url) },
	}
	if hub == "" {
		return daemon.Run(ctx, cfg, options)
	}
	remote := daemon.RemoteExecutor{URL: hub, ID: id, Labels: map[string]string{"program": "embed"}, Listen: cfg.Listen}
	err = daemon.RunExecutor(ctx, remote, cfg, options)
	if refused := new(daemon.RemoteError); errors.As(err, &refused) {
		return fmt.Errorf("the hub does not have this program, and trying again would not help: %w", refused.Err)
	}
	return err
}

// greet runs something by a server that nobody else can reach.
func greet(ctx context.Context) error {
	local, err := daemon.Open(ctx, daemon.LocalURL, daemon.OpenOptions{})
	if err != nil {
		return err
	}
	defer func() { _ = local.Close() }() // its processes have ended
	name, err := local.Output(ctx, client.Command{Argv: []string{"uname", "-s"}})
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "embed: processes run on %s", name)
	return nil
}
