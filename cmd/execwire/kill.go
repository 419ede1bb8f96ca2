package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

type killFlags struct {
	remote      remoteFlags
	signal      string
	force, json bool
	timeout     time.Duration
}

func newKillCommand(std streams) *cobra.Command {
	var flags killFlags
	command := &cobra.Command{
		Use:   "kill [--force|--timeout DURATION|-s SIGNAL] [--json] ID...",
		Short: "End processes and all that they started",
		Long: `kill ends processes and everything that they started: with SIGTERM first and, after
the timeout, with SIGKILL. It returns when they are gone, and says by what means
and whether it is certain that nothing is left. Of a process that has exited it
ends what that has left behind.

With -s it sends a signal to the process group and waits for nothing.

With --json every process is an object on a line of its own: id; was_running,
method (none, process_group, descendants or cgroup), verified_empty and exit, as ps
has it; or signal; or error and reason.

The exit code is 1 when one of the processes could not be ended or signalled.`,
		Example: `  execwire kill build
  execwire kill --force build other
  execwire kill -s HUP daemon`,
		Args: idArguments("process", 0),
		RunE: func(command *cobra.Command, arguments []string) error {
			if err := exclusive(command, "signal", "force", "timeout"); err != nil {
				return err
			}
			signal := execwirev1.Signal(0)
			if flags.signal != "" {
				var err error
				if signal, err = parseSignal(flags.signal); err != nil {
					return usageError(command, err)
				}
			}
			if flags.timeout < 0 {
				return usageError(command, fmt.Errorf("--timeout is %v: it cannot be negative", flags.timeout))
			}
			return withServer(command.Context(), flags.remote.connect, func(c *client.Client) error {
				return kill(command.Context(), c, flags, signal, arguments, std)
			})
		},
	}
	f := command.Flags()
	f.StringVarP(&flags.signal, "signal", "s", "", "only send this `signal`, by name or number")
	f.BoolVar(&flags.force, "force", false, "SIGKILL at once")
	f.DurationVar(&flags.timeout, "timeout", 5*time.Second, "how long to wait between SIGTERM and SIGKILL")
	f.BoolVar(&flags.json, "json", false, "print JSON objects, one per line")
	addRemoteFlags(command, &flags.remote)
	return command
}

// killed is what became of one process, as --json prints it.
type killed struct {
	ID            string      `json:"id"`
	WasRunning    *bool       `json:"was_running,omitempty"`
	Method        string      `json:"method,omitempty"`
	VerifiedEmpty *bool       `json:"verified_empty,omitempty"`
	Exit          *exitObject `json:"exit,omitempty"`
	Signal        string      `json:"signal,omitempty"`
	Error         string      `json:"error,omitempty"`
	Reason        string      `json:"reason,omitempty"`
}

// kill ends or signals the processes, all at once, and prints in their order
// what became of them.
func kill(ctx context.Context, c *client.Client, flags killFlags, signal execwirev1.Signal, ids []string, std streams) error {
	results := make([]killed, len(ids))
	var all sync.WaitGroup
	for i, id := range ids {
		all.Go(func() {
			if signal != 0 {
				results[i] = sendSignal(ctx, c, flags, signal, id)
				return
			}
			results[i] = terminate(ctx, c, flags, id)
		})
	}
	all.Wait()
	failed := false
	for _, result := range results {
		failed = failed || result.Error != ""
		if err := printKilled(result, flags, std); err != nil {
			return err
		}
	}
	if failed {
		return &exitError{code: codeSomeFailed}
	}
	return nil
}

func sendSignal(ctx context.Context, c *client.Client, flags killFlags, signal execwirev1.Signal, id string) killed {
	process := client.ProcessRef{SessionID: flags.remote.session, ProcessID: id}
	if err := c.Signal(ctx, process, syscall.Signal(signal)); err != nil {
		return notKilled(id, err)
	}
	return killed{ID: id, Signal: signalName(signal)}
}

func terminate(ctx context.Context, c *client.Client, flags killFlags, id string) killed {
	process := client.ProcessRef{SessionID: flags.remote.session, ProcessID: id}
	response, err := c.Terminate(ctx, process, client.Termination{Force: flags.force, Timeout: &flags.timeout})
	if err != nil {
		return notKilled(id, err)
	}
	result := killed{ID: id, WasRunning: &response.WasRunning, VerifiedEmpty: &response.VerifiedEmpty,
		Method: enumWord(response.GetMethod(), "KILL_METHOD_"), Exit: describeExit(response.GetExit())}
	if response.GetMethod() == execwirev1.KillMethod_KILL_METHOD_UNSPECIFIED {
		result.Method = "none"
	}
	return result
}

func notKilled(id string, err error) killed {
	result := killed{ID: id, Error: client.FromRPC(err).Error()}
	if reason := client.Reason(err); reason != 0 {
		result.Reason = strings.TrimPrefix(reason.String(), "ERROR_REASON_")
	}
	return result
}

// methodWords say by what means a process and what belongs to it was ended.
var methodWords = map[string]string{
	"none":          "nothing was left to kill",
	"process_group": "by signals to its process group",
	"descendants":   "descendants killed one by one",
	"cgroup":        "descendants killed by cgroup",
}

func printKilled(result killed, flags killFlags, std streams) error {
	var err error
	switch id := shown(result.ID); {
	case flags.json:
		err = printJSON(std.out, result)
	case result.Error != "":
		fmt.Fprintf(std.err, "execwire: %s: %s\n", id, result.Error)
	case result.Signal != "":
		_, err = fmt.Fprintf(std.out, "sent %s to %s\n", result.Signal, id)
	default:
		how, ended, verified := methodWords[result.Method], "ended", "not verified that nothing is left"
		if !*result.WasRunning {
			ended = "had ended"
		}
		if *result.VerifiedEmpty {
			verified = "verified empty"
		}
		_, err = fmt.Fprintf(std.out, "%s %s: %s, %s\n", ended, id, how, verified)
	}
	return err
}
