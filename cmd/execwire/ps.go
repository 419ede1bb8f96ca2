package main

import (
	"context"
	"slices"
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
		Long: `ps lists the processes of a session that have not closed, the newest first; with -a
closed ones too, while the server has their records: for 30 seconds once the result was
requested, an hour otherwise, or as long as run --keep says, unless the server has other
settings. At a terminal the output is a table; elsewhere fields are separated by tabs.

AGE is the time since the start, and DURATION how long a process has run that has ended.
EXIT is the exit code, or the signal that killed the process, and the cause if the
process did not end by itself, or if its sandbox seems to have denied something.

With --json each process is an object on its own line: id, session, state (starting,
running, exited or closed), pid, user, argv, working_directory, terminal, start_time,
last_seq, first_available_seq, owned; for a confined process sandbox: backend
(bubblewrap or landlock), network (restricted or enabled), restricts_files,
hides_processes and freezes_metadata; and, when known, exit: exit_code or signal,
cause, exit_time, wall_seconds and sandbox_denied; and last_output, the last 1024 bytes
of each stream that has output: stream (stdout, stderr or terminal), and text, or base64
if it is not UTF-8.`,
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

// lastOutputBytes is how much of the end of each stream --json has.
const lastOutputBytes = 1024

// durationWord returns how long a process has run that has ended.
func durationWord(exit *execwirev1.ExitRecord) string {
	if exit == nil {
		return "-"
	}
	took := exit.GetWallTime().AsDuration()
	if took < time.Minute {
		return took.Round(time.Millisecond).String()
	}
	return took.Round(time.Second).String()
}

func ps(ctx context.Context, c *client.Client, flags psFlags, std streams) error {
	lastBytes := 0
	if flags.json {
		lastBytes = lastOutputBytes
	}
	var processes []*execwirev1.Process
	for p, err := range c.ListProcessesOutput(ctx, flags.session, lastBytes) {
		if err != nil {
			return err
		}
		if flags.all || p.GetState() != execwirev1.ProcessState_PROCESS_STATE_CLOSED {
			processes = append(processes, p)
		}
	}
	slices.SortStableFunc(processes, func(a, b *execwirev1.Process) int {
		return b.GetStartTime().AsTime().Compare(a.GetStartTime().AsTime())
	})
	list := newListing(std, flags.json, "ID", "STATE", "PID", "USER", "AGE", "DURATION", "EXIT", "COMMAND")
	for _, p := range processes {
		var err error
		switch {
		case flags.quiet:
			err = printLine(std.out, printable(p.GetProcessId()))
		default:
			err = list.add(describeProcess(p),
				printable(p.GetProcessId()),
				enumWord(p.GetState(), "PROCESS_STATE_"),
				strconv.Itoa(int(p.GetPid())),
				printable(p.GetUser()),
				age(time.Since(p.GetStartTime().AsTime())),
				durationWord(p.GetExit()),
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
