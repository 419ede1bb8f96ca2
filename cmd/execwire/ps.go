package main

import (
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

type psFlags struct {
	session          string
	all, json, quiet bool
}

func newPsCommand(std streams) *cobra.Command {
	var flags psFlags
	command := &cobra.Command{
		Use:   "ps [-a] [-q|--json]",
		Short: "List the processes of a server",
		Long: `ps lists the processes of a session that have not closed; with -a closed ones too,
while the server has their records. At a terminal the output is a table; elsewhere
fields are separated by tabs.

EXIT is the exit code, or the signal that killed the process, and the cause if the
process did not end by itself, or if its sandbox seems to have denied something.

With --json each process is an object on its own line: id, session, state (starting,
running, exited or closed), pid, user, argv, working_directory, terminal, start_time,
last_seq, first_available_seq, owned; for a confined process sandbox: backend
(bubblewrap or landlock), network (restricted or enabled), restricts_files,
hides_processes and freezes_metadata; and, when known, exit: exit_code or signal,
cause, exit_time, wall_seconds and sandbox_denied.`,
		Example: `  execwire ps
  execwire ps -a --json | jq -r 'select(.exit.exit_code != 0).id'
  execwire kill $(execwire ps -q)`,
		Args: cobra.MatchAll(noArguments, exclusive("quiet", "json")),
	}
	f := command.Flags()
	f.BoolVarP(&flags.all, "all", "a", false, "include closed processes")
	f.BoolVarP(&flags.quiet, "quiet", "q", false, "print only ids, one per line")
	f.BoolVar(&flags.json, "json", false, "print JSON objects, one per line")
	addSessionFlag(command, &flags.session)
	onServer(command, serverUse{persistent: true}, func(ctx context.Context, c *client.Client, _ []string) error { return ps(ctx, c, flags, std) })
	return command
}

func ps(ctx context.Context, c *client.Client, flags psFlags, std streams) error {
	list := newListing(std, flags.json, "ID", "STATE", "PID", "USER", "AGE", "EXIT", "COMMAND")
	for p, err := range c.ListProcesses(ctx, flags.session) {
		switch {
		case err != nil:
			return err
		case !flags.all && p.GetState() == execwirev1.ProcessState_PROCESS_STATE_CLOSED:
			continue
		case flags.quiet:
			err = printLine(std.out, printable(p.GetProcessId()))
		default:
			err = list.add(describeProcess(p),
				printable(p.GetProcessId()),
				enumWord(p.GetState(), "PROCESS_STATE_"),
				strconv.Itoa(int(p.GetPid())),
				printable(p.GetUser()),
				age(time.Since(p.GetStartTime().AsTime())),
				exitWord(p.GetExit()),
				commandLine(p.GetArgv()))
		}
		if err != nil {
			return err
		}
	}
	if flags.quiet {
		return nil
	}
	return list.end()
}
