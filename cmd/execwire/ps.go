package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

type psFlags struct {
	remote           remoteFlags
	all, json, quiet bool
}

func newPsCommand(std streams) *cobra.Command {
	var flags psFlags
	command := &cobra.Command{
		Use:   "ps [-a] [-q|--json]",
		Short: "List the processes of a server",
		Long: `ps lists the processes of a session that have not closed, and with -a those too
that have, as long as the server remembers them. At a terminal it is a table;
elsewhere the fields have a tab between them.

EXIT is the exit code, or the signal that killed the process, and the cause if
that was not its own doing, or its sandbox seems to have denied it something. With --json every process is an object on a line of
its own, with id, session, state (starting, running, exited or closed), pid, argv,
working_directory, terminal, start_time, last_seq, first_available_seq, owned, of one
in a sandbox also sandbox: backend (bubblewrap or landlock), network (restricted or
enabled), restricts_files, hides_processes and freezes_metadata; and, once it is
known, exit: exit_code or signal, cause, exit_time, wall_seconds and, if so,
sandbox_denied.`,
		Example: `  execwire ps
  execwire ps -a --json | jq -r 'select(.exit.exit_code != 0).id'
  execwire kill $(execwire ps -q)`,
		Args: noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := exclusive(command, "quiet", "json"); err != nil {
				return err
			}
			return withServer(command.Context(), flags.remote.connect, func(c *client.Client) error {
				return ps(command.Context(), c, flags, std)
			})
		},
	}
	f := command.Flags()
	f.BoolVarP(&flags.all, "all", "a", false, "closed processes too")
	f.BoolVarP(&flags.quiet, "quiet", "q", false, "ids only, one per line")
	f.BoolVar(&flags.json, "json", false, "print JSON objects, one per line")
	addRemoteFlags(command, &flags.remote)
	return command
}

func ps(ctx context.Context, c *client.Client, flags psFlags, std streams) error {
	var rows [][]string
	for p, err := range c.ListProcesses(ctx, flags.remote.session) {
		switch {
		case err != nil:
			return err
		case !flags.all && p.GetState() == execwirev1.ProcessState_PROCESS_STATE_CLOSED:
			continue
		case flags.json:
			if err := printJSON(std.out, describeProcess(p)); err != nil {
				return err
			}
			continue
		case flags.quiet:
			if _, err := fmt.Fprintln(std.out, shown(p.GetProcessId())); err != nil {
				return err
			}
			continue
		}
		rows = append(rows, []string{
			shown(p.GetProcessId()),
			enumWord(p.GetState(), "PROCESS_STATE_"),
			strconv.Itoa(int(p.GetPid())),
			age(time.Since(p.GetStartTime().AsTime())),
			exitWord(p.GetExit()),
			commandLine(p.GetArgv()),
		})
	}
	if flags.json || flags.quiet {
		return nil
	}
	return printTable(std.out, []string{"ID", "STATE", "PID", "AGE", "EXIT", "COMMAND"}, rows)
}
