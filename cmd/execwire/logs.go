package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

type logsFlags struct {
	remote         remoteFlags
	follow, json   bool
	since          uint64
	stdout, stderr bool
	tail           int
	hasTail        bool
}

func newLogsCommand(std streams) *cobra.Command {
	var flags logsFlags
	command := &cobra.Command{
		Use:   "logs [-f] [--since-seq N] [--tail BYTES] [--stdout|--stderr] [--json] ID",
		Short: "Print what a process has written",
		Long: `logs prints what is kept of a process's output: its stdout on stdout, its stderr on
stderr. It owns nothing and holds nothing up; output that is not kept any more is
told of on stderr, at its place. With -f it goes on until the process has closed,
also when the connection is lost; its exit code is 0 then, whatever that of the
process is.

With --json every event is an object on a line of its own, with its seq and event:
  output  stream (stdout, stderr or terminal), offset in the stream, data (base64),
          and text if the data is UTF-8
  exited  exit: exit_code or signal, cause, exit_time, wall_seconds
  closed  nothing more comes
  gap     first_available_seq, dropped_bytes, and upper_bound if it may be less`,
		Example: `  execwire logs build
  execwire logs -f --tail 4096 build
  execwire logs --json --since-seq 17 build | jq -r .text`,
		Args: idArguments("process", 1),
		RunE: func(command *cobra.Command, arguments []string) error {
			if err := exclusive(command, "stdout", "stderr"); err != nil {
				return err
			}
			flags.hasTail = command.Flags().Changed("tail")
			if flags.hasTail && flags.tail < 0 {
				return usageError(command, fmt.Errorf("--tail is %d: it cannot be negative", flags.tail))
			}
			return withServer(command.Context(), flags.remote.connect, func(c *client.Client) error {
				return logs(command.Context(), c, flags, arguments[0], std)
			})
		},
	}
	f := command.Flags()
	f.BoolVarP(&flags.follow, "follow", "f", false, "go on until the process has closed")
	f.Uint64Var(&flags.since, "since-seq", 0, "begin after the event with this `number`")
	f.IntVar(&flags.tail, "tail", 0, "begin with the last `bytes` of what is kept")
	f.BoolVar(&flags.stdout, "stdout", false, "stdout, or the terminal, only")
	f.BoolVar(&flags.stderr, "stderr", false, "stderr only")
	f.BoolVar(&flags.json, "json", false, "print JSON objects, one per line")
	addRemoteFlags(command, &flags.remote)
	return command
}

func logs(ctx context.Context, c *client.Client, flags logsFlags, id string, std streams) error {
	process := client.ProcessRef{SessionID: flags.remote.session, ProcessID: id, AfterSeq: flags.since}
	printer := &logPrinter{flags: flags, std: std}
	if flags.hasTail || !flags.follow {
		kept := &logTail{limit: flags.tail}
		var err error
		process.AfterSeq, err = readKept(ctx, c, process, func(e *execwirev1.ProcessEvent) error {
			switch {
			case !printer.wants(e):
				return nil
			case flags.hasTail:
				kept.add(e)
				return nil
			}
			return printer.print(e)
		})
		if err == nil {
			err = kept.print(printer)
		}
		if err != nil || !flags.follow {
			return err
		}
	}
	return followLogs(ctx, c, process, printer)
}

// followLogs prints until the process has closed.
func followLogs(ctx context.Context, c *client.Client, process client.ProcessRef, printer *logPrinter) error {
	report := lossReport{to: printer.std.err}
	defer report.end()
	exit, err := c.Follow(ctx, process, client.FollowOptions{
		OnEvent: func(e *execwirev1.ProcessEvent) error {
			if !printer.wants(e) {
				return nil
			}
			return printer.print(e)
		},
		OnLost:    func(error) { report.begin() },
		OnResumed: report.end,
	})
	var lost *client.LostError
	switch {
	case errors.As(err, &lost) && client.Reason(lost.Err) == execwirev1.ErrorReason_ERROR_REASON_PROCESS_NOT_FOUND:
		return &exitError{code: codeFailed, err: err, hint: "the server was started anew, or has forgotten the process"}
	case err == nil && exit.Cause == execwirev1.ExitCause_EXIT_CAUSE_SERVER_SHUTDOWN:
		fmt.Fprintln(printer.std.err, "execwire: the server shut down and ended the process")
	}
	return err
}

// readKept calls do with what is kept of a process's output now, and returns
// the cursor behind it.
func readKept(
	ctx context.Context, c *client.Client, process client.ProcessRef, do func(*execwirev1.ProcessEvent) error,
) (uint64, error) {
	after := process.AfterSeq
	for until := uint64(0); ; {
		page, err := c.ReadOutput(ctx, process, client.ReadOptions{AfterSeq: after})
		if err != nil {
			return 0, err
		}
		if until == 0 {
			until = page.GetLastSeq()
		}
		for _, e := range page.GetEvents() {
			if err := do(e); err != nil {
				return 0, err
			}
		}
		if after = page.GetNextAfterSeq(); after >= until || len(page.GetEvents()) == 0 {
			return after, nil
		}
	}
}
