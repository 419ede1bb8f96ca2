package main

import (
	"context"
	"errors"
	"os"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/daemon"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/process"
)

type runFlags struct {
	connectFlags
	session, id          string
	terminal, stdin      bool
	directory            string
	env, envFiles        []string
	inherit              string
	timeout, grace       time.Duration
	hasTimeout, hasGrace bool
	silence              time.Duration // --no-output-timeout
	hasSilence           bool
	nice                 int32
	limits               []string
	detach, json         bool
	leaveDescendants     bool
	replace              bool
	noWaitDescendants    bool
	confine              sandboxFlags
}

func newRunCommand(std streams) *cobra.Command {
	var flags runFlags
	command := &cobra.Command{
		Use:   "run [flags] [--] PROGRAM [ARGUMENT]...",
		Short: "Run a process and pass its input and output",
		Long: `run starts a process and behaves like it: stdout and stderr are passed apart, and
run exits with its exit code, or with 128+n when signal n killed it.

Without --server (or ` + serverVariable + `) the process runs on this machine, under a
server inside this program, which has a guardian as that of execwire serve has: if
either is killed, the process ends with all its descendants. With --server a lost connection is resumed within the
grace, and nothing is lost or printed twice.

With --detach run returns when the process runs, and prints its id and nothing
else; the server keeps the process, and its last output, without anybody owning
it. See: execwire logs, attach, wait and kill. -i then gives it a stdin that attach
can write to, and -t a terminal. How it ended and what it wrote is kept for an hour,
and for 30 seconds once it was asked for, unless the server is set otherwise.

An --id names one process for as long as the server has a record of it: another run
under the same id is refused, also with the same command. With --replace it takes the
place of a process that has ended, whether it was asked how or not.

When the process has exited, run waits until its output has ended, as ssh does: what
the process moved to the background may hold it open. Then whatever is left of the
process is killed. --no-wait-descendants does not wait: it terminates what is left (2s
to end, then it is killed). --leave-descendants leaves it alone, until the server ends.

Environment: in this program the process inherits everything; a remote one
gets PATH, HOME, USER, LANG and the like from the server. --env-inherit changes
that: none, core, or all, which of a remote server leaves out names that look like
secrets (*KEY*, *SECRET*, *TOKEN*). With -t TERM is passed on. --env-file and then
--env are laid over it.

Sandbox: with --sandbox the kernel keeps the process, and all that it starts,
from whatever it is not allowed, or it is not started. read-only lets it read
everything and write nothing; workspace-write lets it write to its directory and
each --writable, but not to .git, .agents and .codex in them, and to TMPDIR and
/tmp. Both keep it from the network, unless --network is there. A file has a
SandboxPolicy of the contract, as JSON of protobuf. A server may require a
sandbox of everything, which a request can only narrow. See: execwire doctor.

Signals: SIGINT, SIGTERM, SIGHUP and SIGQUIT are passed on to the process group. Once
the process has exited after one, what is left of it is terminated (2s to end, then it
is killed), so that run always ends; it exits as the process did, with 128+n if signal
n ended that. A second SIGTERM, or a third SIGINT within three seconds, kills the
process with all its descendants, one more gives up on it. With -t and -i at a
terminal the keys go to the process instead. Ctrl-Z (SIGTSTP) stops this program
alone: the process goes on until it has written a window of output that nobody
takes. A remote server takes a program that stays stopped for lost, so give a
--grace that covers the break.

Exit codes of run itself:
    2  the command line is wrong
  124  the process ran into --timeout or --no-output-timeout
  125  run failed: no server, connection lost for good, the server was restarted and
       the process ended with it, bad directory
  126  the program cannot be executed
  127  the program was not found
  130  the user gave up
  141  nobody reads stdout or stderr any more`,
		Example: `  execwire run -- make test
  execwire run --timeout 30s --env CI=1 -- sh -c 'echo "$CI"'
  execwire run --no-output-timeout 1m --limit open-files=100 -- ./download
  echo hello | execwire run -i -- tr a-z A-Z
  execwire run --sandbox workspace-write --writable ~/.cache -- make test
  execwire run --server unix:///run/user/1000/execwire.sock -ti -- bash
  id=$(execwire run --server grpc://127.0.0.1:7420 --detach -- make test)`,
		Args: func(command *cobra.Command, arguments []string) error {
			if len(arguments) == 0 || arguments[0] == "" {
				return usageError(command, errors.New("name a program to run"))
			}
			return nil
		},
		RunE: func(command *cobra.Command, arguments []string) error {
			flags.hasTimeout = command.Flags().Changed("timeout")
			flags.hasSilence = command.Flags().Changed("no-output-timeout")
			flags.hasGrace = command.Flags().Changed("grace")
			flags.confine.isAsked = command.Flags().Changed("sandbox")
			return run(command, flags, arguments, std)
		},
	}
	addRunFlags(command, &flags)
	return command
}

func addRunFlags(command *cobra.Command, flags *runFlags) {
	f := command.Flags()
	f.SetInterspersed(false) // what follows the program is the program's
	addConnectFlags(command, &flags.connectFlags)
	f.StringVar(&flags.session, "session", "", "the `ID` of the session to run in (default your default session)")
	f.StringVar(&flags.id, "id", "", "the process's `ID`, to find it by while it runs (default a new one)")
	f.BoolVar(&flags.replace, "replace", false, "with --id: take the place of a process with that id that has ended")
	f.BoolVarP(&flags.terminal, "terminal", "t", false, "give the process a terminal, of the size of this one")
	f.BoolVarP(&flags.stdin, "interactive", "i", false, "pass stdin on; without it the process reads end of file")
	f.StringVar(&flags.directory, "cwd", "",
		"the `directory` to run in, which has to exist on the server (default the current one)")
	f.StringArrayVarP(&flags.env, "env", "e", nil,
		"set a variable: `NAME=VALUE`, or NAME to pass on its value here; may be repeated")
	f.StringArrayVar(&flags.envFiles, "env-file", nil,
		"a `file` with such lines; empty ones and those that begin with # are left out; may be repeated")
	f.StringVar(&flags.inherit, "env-inherit", "", "`what` to take from the server's environment: none, core or all")
	f.DurationVar(&flags.timeout, "timeout", 0, "kill the process when it has run for this long, e.g. 30s")
	f.DurationVar(&flags.silence, "no-output-timeout", 0, "kill the process when it wrote nothing for this long")
	f.Int32Var(&flags.nice, "nice", 0, "add `N` to the process's nice value: 1 to 39 for less processor time")
	f.StringArrayVar(&flags.limits, "limit", nil,
		"limit a resource: `NAME=SOFT[:HARD]`, e.g. open-files=100, file-bytes=64MiB, cpu-seconds=10:20; may be repeated")
	f.StringVar(&flags.confine.sandbox, "sandbox", "",
		"confine the process: `POLICY` is read-only, workspace-write, or a file with a policy")
	f.StringArrayVar(&flags.confine.writable, "writable", nil,
		"with --sandbox workspace-write: a `directory` that it may write to, too; may be repeated")
	f.BoolVar(&flags.confine.network, "network", false, "with --sandbox: let the process reach the network")
	f.BoolVar(&flags.detach, "detach", false, "print the id of the process and leave it to the server, reached by gRPC")
	f.BoolVar(&flags.leaveDescendants, "leave-descendants", false,
		"leave daemons that the process started alone when it is over; they end with the server")
	f.BoolVar(&flags.noWaitDescendants, "no-wait-descendants", false,
		"end when the process has exited, and terminate what it left in the background, also if that holds its output open")
	f.BoolVar(&flags.json, "json", false, "with --detach: print an object with id and pid")
	f.DurationVar(&flags.grace, "grace", 0,
		"how long the server keeps the process when the connection is lost; 0 ends it at once (default the server's, 30s)")
}

// heapGrowth lets the heap, which is tiny, grow to some 16 MiB before it is
// collected. At full rate collecting it at 4 MiB takes a third of the processor
// time of a run.
const heapGrowth = 400

// run runs one process and returns how it ended as an exitError.
func run(command *cobra.Command, flags runFlags, arguments []string, std streams) error {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(heapGrowth)
	}
	if flags.server == daemon.LocalURL {
		flags.server = "" // and what needs a server elsewhere is refused
	}
	guardian, err := process.Guarded() // before the environment is read
	if err != nil {
		return err
	}
	request, err := buildProcess(flags, arguments, std)
	if err != nil {
		return usageError(command, err)
	}
	if flags.leaveDescendants && flags.server == "" {
		return usageError(command, errors.New(
			"--leave-descendants needs a server that goes on when this program ends: name one with --server or "+serverVariable))
	}
	if flags.replace && flags.id == "" {
		return usageError(command, errors.New("--replace is for --id: name the process to replace"))
	}
	if flags.noWaitDescendants && (flags.leaveDescendants || flags.detach) {
		return usageError(command, errors.New(
			"--no-wait-descendants ends what the process leaves behind: leave out --leave-descendants and --detach, which keep it"))
	}
	if flags.detach {
		return runDetached(command, flags, request, std)
	}
	if flags.json {
		return usageError(command, errors.New("--json is for --detach: otherwise the output is that of the process"))
	}
	if flags.server == "" && guardian == nil {
		if done, err := guardEmbedded(); done {
			return err
		}
	}
	server, closeServer, err := connect(command.Context(), flags.connectFlags)
	if err != nil {
		return explainDial(err)
	}
	closeServer = sync.OnceFunc(closeServer)
	defer closeServer()
	return underGuardian(command.Context(), guardian, closeServer, func(ctx context.Context, passed <-chan syscall.Signal) error {
		return runAttended(ctx, server, flags, request, passed, std)
	})
}

// runAttended runs the process on a server. passed are the signals that the guardian
// of this program got.
func runAttended(ctx context.Context, server *client.Client, flags runFlags, process *execwirev1.StartProcessRequest, passed <-chan syscall.Signal, std streams) error {
	if err := findWritable(ctx, server, flags.confine); err != nil {
		return err
	}
	options := client.RunOptions{Process: process, Stdout: std.out, Stderr: std.err}
	if flags.stdin {
		options.Stdin = std.in
	}
	if flags.hasGrace {
		options.Grace = &flags.grace
	}
	how := attention{terminal: flags.terminal, stdin: flags.stdin, noWaitDescendants: flags.noWaitDescendants, passed: passed}
	exit, killed, err := attended(ctx, options, how, std, server.Run)
	if err != nil {
		return explainRun(err, flags)
	}
	return explainDenied(explainExit(exit, killed), exit, flags.confine, std)
}
