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
	"github.com/execwire/execwire/cmd/execwire/internal/complete"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/errorinfo"
)

type killFlags struct {
	session     string
	signal      string
	force, json bool
	timeout     time.Duration
}

func newKillCommand(std streams) *cobra.Command {
	var flags killFlags
	var signal execwirev1.Signal
	command := &cobra.Command{
		Use:   "kill [--force|--timeout DURATION|-s SIGNAL|-SIGNAL] [--json] ID...",
		Short: "Terminate processes with all their descendants",
		Long: `kill terminates processes with all their descendants: by SIGTERM and, after the
timeout, by SIGKILL. It returns when they have ended, and reports the method and
whether it is certain that no descendant is left. If a process has exited, kill ends
its remaining descendants.

With -s, or as -9, -KILL or -SIGKILL, it sends a signal to the process group and does
not wait.

With --json each process is an object on its own line: id; was_running, method (none,
process_group, descendants or cgroup), verified_empty and exit, as in ps; or signal;
or error and reason.

The exit code is 1 if a process could not be ended or signalled.`,
		Example: `  execwire kill build
  execwire kill --force build other
  execwire kill -s HUP daemon
  execwire kill -9 build`,
		Args: cobra.MatchAll(ids("process", unlimited), exclusive("signal", "force", "timeout"), nonNegative("timeout"),
			valid(func(*cobra.Command, []string) (err error) {
				if flags.signal != "" {
					signal, err = parseSignal(flags.signal)
				}
				return err
			})),
	}
	f := command.Flags()
	f.StringVarP(&flags.signal, "signal", "s", "", "only send this `signal`, by name or number")
	f.BoolVar(&flags.force, "force", false, "send SIGKILL at once")
	addDuration(f, &flags.timeout, "timeout", 5*time.Second, "how long to wait between SIGTERM and SIGKILL")
	f.BoolVar(&flags.json, "json", false, "print JSON objects, one per line")
	addSessionFlag(command, &flags.session)
	onServer(command, serverUse{persistent: true, completes: complete.Processes}, func(ctx context.Context, c *client.Client, arguments []string) error {
		return kill(ctx, c, flags, signal, arguments, std)
	})
	return command
}

// signalFlag returns a flag of kill such as -9, -TERM or -SIGTERM as a long one.
func signalFlag(argument string) string {
	name, isFlag := strings.CutPrefix(argument, "-")
	if _, err := parseSignal(name); !isFlag || err != nil {
		return argument
	}
	return "--signal=" + name
}

// killResult is the JSON output for one process.
type killResult struct {
	ID            string      `json:"id"`
	WasRunning    *bool       `json:"was_running,omitempty"`
	Method        string      `json:"method,omitempty"`
	VerifiedEmpty *bool       `json:"verified_empty,omitempty"`
	Exit          *exitObject `json:"exit,omitempty"`
	Signal        string      `json:"signal,omitempty"`
	Error         string      `json:"error,omitempty"`
	Reason        string      `json:"reason,omitempty"`
}

// kill ends or signals the processes concurrently, and prints the results in order.
func kill(ctx context.Context, c *client.Client, flags killFlags, signal execwirev1.Signal, ids []string, std streams) error {
	results := make([]killResult, len(ids))
	var all sync.WaitGroup
	for i, id := range ids {
		all.Go(func() { results[i] = killOne(ctx, c, flags, signal, id) })
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

func killOne(ctx context.Context, c *client.Client, flags killFlags, signal execwirev1.Signal, id string) killResult {
	process := client.ProcessRef{SessionID: flags.session, ProcessID: id}
	result := killResult{ID: id}
	var response *execwirev1.TerminateProcessResponse
	var err error
	if signal != 0 {
		result.Signal, err = signalName(signal), c.Signal(ctx, process, syscall.Signal(signal))
	} else {
		response, err = c.Terminate(ctx, process, client.Termination{Force: flags.force, Timeout: &flags.timeout})
	}
	switch {
	case err != nil:
		result = killResult{ID: id, Error: client.FromRPC(err).Error()}
		if reason := client.Reason(err); reason != 0 {
			result.Reason = errorinfo.Name(reason)
		}
	case response != nil:
		result.WasRunning, result.VerifiedEmpty, result.Exit = &response.WasRunning, &response.VerifiedEmpty, describeExit(response.GetExit())
		result.Method = enumWord(response.GetMethod(), "KILL_METHOD_")
		if response.GetMethod() == execwirev1.KillMethod_KILL_METHOD_UNSPECIFIED {
			result.Method = "none"
		}
	}
	return result
}

// methodWords describe the methods of ending a process.
var methodWords = map[string]string{
	"none":          "nothing was left to kill",
	"process_group": "by signals to its process group",
	"descendants":   "descendants killed one by one",
	"cgroup":        "descendants killed by cgroup",
}

func printKilled(result killResult, flags killFlags, std streams) error {
	var err error
	switch id := printable(result.ID); {
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
