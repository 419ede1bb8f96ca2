// Command hello is the shortest program that uses the SDK: it writes a file on the
// machine selected by a URL, and runs a command there.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/daemon"
)

func main() {
	ctx := context.Background()
	machine, err := daemon.Open(ctx, os.Getenv("EXECWIRE_SERVER"), daemon.OpenOptions{})
	if err == nil {
		err = hello(ctx, machine)
		_ = machine.Close() // all calls have finished
	}
	if err != nil {
		slog.Error("failed", "error", err)
		os.Exit(1)
	}
}

func hello(ctx context.Context, machine client.Environment) error {
	if err := machine.WriteFile(ctx, "/tmp/greeting", []byte("hello\n")); err != nil {
		return err
	}
	command := client.Command{Argv: []string{"sh", "-c", "cat greeting; rm greeting; exit 3"}, Dir: "/tmp"}
	process, err := machine.Start(ctx, client.StartOptions{Process: command.Request()})
	if err != nil {
		return err
	}
	defer process.Close()
	for event, err := range process.Events(ctx) {
		if err != nil {
			return err
		}
		switch e := event.(type) {
		case *client.OutputEvent:
			os.Stdout.Write(e.Data)
		case *client.ExitedEvent:
			fmt.Fprintln(os.Stdout, "exit code", e.Exit.ShellCode())
		}
	}
	return nil
}
