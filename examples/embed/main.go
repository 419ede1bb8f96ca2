// Command embed is a program with an embedded server: gRPC clients connect to a
// listener or, with a hub, through it. docs/embedding.md explains it.
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
	daemon.Main() // must be first: for a sandbox the server runs this program again
	listen := flag.String("listen", "tcp://127.0.0.1:0", "where to listen: unix:///PATH or tcp://127.0.0.1:PORT")
	hub := flag.String("hub", "", "the URL of a hub to register with")
	id := flag.String("executor-id", "embedded", "the executor id at the hub")
	flag.Parse()
	// A second signal terminates the program.
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
		return fmt.Errorf("the hub rejects this program permanently: %w", refused.Err)
	}
	return err
}

// greet runs a command on a server that only this program can reach.
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
