// Command agent runs the commands of an agent on another machine.
//
//	agent tcp://127.0.0.1:7420 /srv/project
//
// Each line of stdin is a step: {"command": "make test", "timeout": 60}. Its output is shown
// on stderr as it arrives. Its result is a line of stdout, for the model:
// {"exit_code": 2, "timed_out": false, "stdout": "...", "stderr": "..."}, or {"error": "..."}.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: agent URL DIRECTORY <STEPS")
		os.Exit(2)
	}
	if err := loop(context.Background(), os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "agent:", err)
		os.Exit(1)
	}
}

func loop(ctx context.Context, url, directory string) error {
	machine, err := client.Dial(ctx, url)
	if err != nil {
		return err
	}
	defer machine.Close()
	steps, results := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for steps.More() {
		step := struct {
			Command string
			Timeout float64
		}{Timeout: 120}
		if err := steps.Decode(&step); err != nil {
			return err
		}
		command := client.Command{Argv: client.Shell(step.Command), Dir: directory, Timeout: time.Duration(step.Timeout * float64(time.Second))}
		result, err := run(ctx, machine, command)
		if err := errors.Join(err, results.Encode(result)); err != nil {
			return err
		}
	}
	return nil
}

// run runs a step. The server ends it, with all its descendants, after the timeout.
func run(ctx context.Context, machine *client.Client, step client.Command) (result map[string]any, err error) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt) // Ctrl-C kills the step
	defer stop()
	var stdout, stderr bytes.Buffer
	exit, err := machine.Run(ctx, client.RunOptions{
		Process: step.Request(),
		Stdout:  io.MultiWriter(os.Stderr, &stdout), // as output arrives
		Stderr:  io.MultiWriter(os.Stderr, &stderr),
	})
	if client.Reason(err) != execwirev1.ErrorReason_ERROR_REASON_UNSPECIFIED { // of the server
		return map[string]any{"error": err.Error()}, nil
	}
	const most = 20_000 // bytes of output for the model: the end, where errors are
	return map[string]any{
		"exit_code": exit.ShellCode(),
		"timed_out": exit.Cause == execwirev1.ExitCause_EXIT_CAUSE_TIMEOUT,
		"stdout":    string(stdout.Bytes()[max(0, stdout.Len()-most):]),
		"stderr":    string(stderr.Bytes()[max(0, stderr.Len()-most):]),
	}, err
}
