package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/cmd/execwire/internal/recording"
	"github.com/execwire/execwire/cmd/execwire/internal/terminal"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

type runFlags struct {
	connectFlags
	session, id, user string
	arguments         []string // the command
	terminal, stdin   bool
	directory         string
	env, envFiles     []string
	inherit           string
	timeout, grace    time.Duration
	hasGrace          bool
	silence           time.Duration // --no-output-timeout
	nice              int32
	limits            []string
	detach            bool
	keep              time.Duration
	json              string // jsonEvents, jsonResult or empty
	detachKeys        string
	keys              []byte // of detachKeys
	leaveDescendants  bool
	replace           bool
	noWaitDescendants bool
	confine           sandboxFlags
	record            string // the file; empty: none
	recordInput       bool
	recordFormat      recording.Format
}

func newRunCommand(std streams) *cobra.Command {
	var flags runFlags
	command := &cobra.Command{
		Use:   "run [flags] [--] PROGRAM [ARGUMENT]...",
		Short: "Run a process and pass its input and output",
		Long: `run starts a process and behaves like it: stdout and stderr stay separate, and run
exits with the exit code of the process, or with 128+n if signal n killed it.

The server is that of --server, of --hub and --executor, or of --context. The default is
$` + serverVariable + `, else the current context. Without any the process runs on this
machine, which run says on a terminal unless --server is local:, under a server inside
this program, which has a guardian like that of execwire serve: if
either is killed, the process is killed with all its descendants. With --server a
lost connection is resumed within the grace period, and no output is lost or printed
twice.

With --detach run prints only the id of the process, and returns when it runs. The
server keeps the process and its last output, without an owner; see execwire logs,
attach, wait and kill. -i then gives the process a stdin that attach can write to, and
-t a terminal. The server keeps its result and output for an hour, or for 30 seconds
once the result was requested, unless it has other settings; with --keep for that time
from its end, whether the result was requested or not.

An --id is taken while the server has a record of the process: another run with the
same id fails, even with the same command. --replace replaces a process that has
ended, whose result and output are then gone; if the new one cannot be started, they stay.

When the process has exited, run waits until its output has ended, as ssh does:
background processes may keep it open. Then all descendants are killed.
--no-wait-descendants does not wait, but terminates them (SIGKILL after 2s).
--leave-descendants keeps them running until the server ends.

As in other programs, --name is --id, --workdir is --cwd, and --rm is accepted, because
run leaves nothing to remove.

A process runs as the user of its server, or as that of --user: a name or a number of
the server's machine, with the groups that it has there, or with :GROUP in that one
alone. It has nothing of the privileges of the server. The server has to run as root,
and if it has a table of principals, yours needs the user in run_as.

The working directory is that of --cwd. The default is the current directory under a
server inside this program, and the home directory of the server's user elsewhere, or
of --user. A relative one begins there.

Environment: under a server inside this program the process inherits everything,
unless --user is given. A remote process gets PATH, HOME, USER, LANG and similar from
the server. --env-inherit changes that: none, core, or all, which on a remote server omits names that look like
secrets (*KEY*, *SECRET*, *TOKEN*). -t passes TERM. --env-file and then --env
override it.

Sandbox: with --sandbox the kernel restricts the process and its descendants. If the
policy cannot be enforced, the process is not started. read-only allows reading
everything and writing nothing. workspace-write allows writing to the working
directory, each --writable (except .git, .agents and .codex in them), TMPDIR and
/tmp. Both deny the network, unless --network is given. A file has a SandboxPolicy as
protobuf JSON. A server may require a sandbox, which a request can only restrict
further. See: execwire doctor.

Recording: --record writes what the process writes, and the sizes of its terminal, to a
file in the format of asciinema, for execwire play and players of that. It is created with
mode 0600, and must not exist. With --record-input it also has what is typed, which the
terminal may not show because it is secret.

Signals: SIGINT, SIGTERM, SIGHUP and SIGQUIT are passed to the process group. When
the process has exited after one, its descendants are terminated (SIGKILL after 2s),
so that run always ends, with the exit code of the process, or 128+n if signal n
killed it. A second SIGTERM, or a third SIGINT within three seconds, kills the process
with all its descendants; one more ends run without waiting. With -t and -i at a
terminal the keys go to the process instead, except for those of --detach-keys: typed in
sequence, they leave the process running on the server without an owner, and run exits
with 0. A server inside this program ends with it, so there they are keys as any other. Ctrl-Z (SIGTSTP) stops only this program:
the process continues until its unacknowledged output fills a window. A remote server
considers a stopped client lost, so choose a --grace that covers the pause.

JSON: --json prints an object per line for each event: {"event":"started"} with id and
pid; {"event":"output"} with stream (stdout, stderr or terminal) and text, or base64 where
a piece of output is not UTF-8; and {"event":"exited"} with id, exit_code or signal,
cause, wall_seconds, and if they are not false or 0 sandbox_denied and dropped_bytes.
--json=result prints only the members of the last one; output then goes to stderr. The
exit codes are the same. Errors of run are text on stderr.

Exit codes of run itself:
    2  the command line is wrong
  124  --timeout or --no-output-timeout was reached
  125  run failed: no server, connection lost and not resumed, the server was
       restarted and the process ended with it, bad directory
  126  the program cannot be executed
  127  the program was not found
  130  the user interrupted run
  141  stdout or stderr was closed`,
		Example: `  execwire run -- make test
  execwire run --timeout 30s --env CI=1 -- sh -c 'echo "$CI"'
  execwire run --no-output-timeout 1m --limit open-files=100 -- ./download
  echo hello | execwire run -i -- tr a-z A-Z
  execwire run --sandbox workspace-write --writable ~/.cache -- make test
  execwire run --server unix:///run/user/1000/execwire.sock -ti -- bash
  id=$(execwire run --server tcp://127.0.0.1:7420 --detach -- make test)`,
		Args: cobra.MatchAll(positive("timeout", "no-output-timeout", "keep"), func(command *cobra.Command, arguments []string) error {
			if len(arguments) == 0 || arguments[0] == "" {
				return usageError(command, errors.New("name a program to run"))
			}
			return nil
		}),
		RunE: func(command *cobra.Command, arguments []string) error {
			flags.arguments = arguments
			flags.hasGrace = command.Flags().Changed("grace")
			keys, err := parseKeys(flags.detachKeys)
			if err == nil && len(keys) > 0 && command.Flags().Changed("detach-keys") && (!flags.terminal || !flags.stdin) {
				err = errors.New("--detach-keys is for -t and -i: the keys are those of a terminal")
			}
			if err != nil {
				return usageError(command, err)
			}
			flags.keys = keys
			flags.confine.isAsked = command.Flags().Changed("sandbox")
			return run(command, flags, arguments, std)
		},
	}
	addRunFlags(command, &flags)
	return command
}

func addRunFlags(command *cobra.Command, flags *runFlags) {
	f := command.Flags()
	f.SetInterspersed(false) // flags after the program belong to the program
	f.StringVar(&flags.session, "session", "", "the `ID` of the session to run in (default your default session)")
	f.StringVar(&flags.id, "id", "", "the `ID` of the process (default a new one)")
	f.BoolVar(&flags.replace, "replace", false, "with --id: replace an ended process with that id")
	f.BoolVarP(&flags.terminal, "terminal", "t", false, "run the process in a terminal of the size of this one")
	f.BoolVarP(&flags.stdin, "interactive", "i", false, "pass stdin to the process; without it the process reads end of file")
	f.StringVar(&flags.detachKeys, "detach-keys", defaultDetachKeys, detachKeysHelp)
	f.StringVarP(&flags.directory, "cwd", "w", "",
		"the working `directory` on the server; a relative one begins at the default (the home of its user; the current one if the process runs on this machine)")
	f.StringVarP(&flags.user, "user", "u", "", "run as another `USER[:GROUP]`, by names or numbers of the server's machine")
	f.StringArrayVarP(&flags.env, "env", "e", nil,
		"set a variable: `NAME=VALUE`, or NAME for its value here; may be repeated")
	f.StringArrayVar(&flags.envFiles, "env-file", nil,
		"a `file` with such lines; empty lines and comments (#) are ignored; may be repeated")
	f.StringVar(&flags.inherit, "env-inherit", "", "`what` to inherit from the server's environment: none, core or all")
	addDuration(f, &flags.timeout, "timeout", 0, "kill the process when it has run for this long, e.g. 30s")
	addDuration(f, &flags.silence, "no-output-timeout", 0, "kill the process when it wrote nothing for this long")
	f.Int32Var(&flags.nice, "nice", 0, "add `N` to the process's nice value: 1 to 39 for less CPU time")
	f.StringArrayVar(&flags.limits, "limit", nil,
		"limit a resource: `NAME=SOFT[:HARD]`, e.g. open-files=100, file-bytes=64MiB, cpu-seconds=10:20; may be repeated")
	f.StringVar(&flags.confine.sandbox, "sandbox", "",
		"confine the process: `POLICY` is read-only, workspace-write, or a file with a policy")
	f.StringArrayVar(&flags.confine.writable, "writable", nil,
		"with --sandbox workspace-write: another writable `directory`; may be repeated")
	f.BoolVar(&flags.confine.network, "network", false, "with --sandbox: allow the network")
	f.BoolVarP(&flags.detach, "detach", "d", false, "print the id of the process and leave it running on the server")
	addDuration(f, &flags.keep, "keep", 0, "with --detach: how long the server keeps the result and output when the process has ended, e.g. 24h")
	f.BoolVar(&flags.leaveDescendants, "leave-descendants", false,
		"keep descendants running when the process has ended; they end with the server")
	f.BoolVar(&flags.noWaitDescendants, "no-wait-descendants", false,
		"do not wait for background processes that keep the output open: terminate them when the process has exited")
	f.StringVar(&flags.record, "record", "", "record the run in this `file`, in the format of asciinema")
	f.BoolVar(&flags.recordInput, "record-input", false, "with --record: record the input, too, with all that is secret in it")
	f.Var(&flags.recordFormat, "record-format", "with --record: "+recording.FormatHelp+" (default v2)")
	f.StringVar(&flags.json, "json", "", "print JSON: `events`, one object per line, or result, for the end only; with --detach an object with id and pid")
	f.Lookup("json").NoOptDefVal = jsonEvents
	addDuration(f, &flags.grace, "grace", 0,
		"the grace period: how long the server keeps the process when the connection is lost; 0 terminates it at once (default the server's, 30s)")
	addSynonyms(f, map[string]string{"name": "id", "workdir": "cwd", "tty": "terminal", "stdin": "interactive"})
	addHidden(f, new(bool), "rm", "", "accepted: run leaves nothing to remove")
	addConnectFlags(command, &flags.connectFlags, serverHelp+ephemeralServers, localURL)
}

// heapGrowth lets the tiny heap grow to about 16 MiB between collections. At full rate,
// collecting it at 4 MiB takes a third of the processor time of a run.
const heapGrowth = 400

// run runs one process and returns its end as an exitError.
func run(command *cobra.Command, flags runFlags, arguments []string, std streams) error {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(heapGrowth)
	}
	isChosen := flags.server == localURL
	if isChosen {
		flags.server = "" // flags that need a server are rejected
	}
	watch, err := guarded() // before the environment is read
	if err != nil {
		return err
	}
	request, err := buildProcess(flags, arguments, std)
	if err == nil {
		err = checkRun(flags)
	}
	if errors.Is(err, errNeedsServer) {
		return &exitError{code: codeUsage, err: err, hint: startHint}
	}
	if err != nil {
		return usageError(command, err)
	}
	if flags.detach {
		return runDetached(command, flags, request, std)
	}
	if flags.server == "" && watch == nil {
		if !isChosen && (flags.id != "" || flags.session != "" || flags.hasGrace || term.IsTerminal(int(std.err.Fd()))) {
			fmt.Fprintln(std.err, "execwire: nothing names a server: the process runs on this machine and ends with this command")
		}
		if done, err := guardEmbedded(); done {
			return err
		}
	}
	server, err := connect(command.Context(), flags.connectFlags)
	if err != nil {
		return err
	}
	defer func() { _ = server.Close() }()
	ctx, cancel := context.WithCancelCause(command.Context())
	defer cancel(nil)
	if watch != nil {
		go endUnguarded(watch, cancel, server)
	}
	return runForeground(ctx, server, flags, request, watch.Signals(), std)
}

// errNeedsServer is the error for flags that need a server beyond this program.
var errNeedsServer = errors.New("needs a server that goes on when this program ends: name one with --server, " + serverVariable + " or a context")

// startHint is its hint.
const startHint = "start one with: execwire serve; and then: execwire run --server " + defaultServer + " …"

// checkRun rejects flags that exclude each other.
func checkRun(flags runFlags) error {
	switch {
	case flags.leaveDescendants && flags.server == "":
		return fmt.Errorf("--leave-descendants %w", errNeedsServer)
	case flags.replace && flags.id == "":
		return errors.New("--replace is for --id: name the process to replace")
	case flags.noWaitDescendants && (flags.leaveDescendants || flags.detach):
		return errors.New("--no-wait-descendants ends what the process leaves behind: leave out --leave-descendants and --detach, which keep it")
	case flags.detach && flags.server == "":
		return fmt.Errorf("--detach %w", errNeedsServer)
	case flags.keep > 0 && !flags.detach:
		return errors.New("--keep is for --detach: without it run prints the output and the result itself")
	case flags.keep > 0 && flags.session != "":
		return errors.New("--keep is for your default session: leave out --session")
	case flags.detach && flags.hasGrace:
		return errors.New("--grace is for an owner that is lost, and --detach leaves the process without one")
	case flags.record == "" && (flags.recordInput || flags.recordFormat.Version != 0):
		return errors.New("--record-input and --record-format are for --record: name the file of the recording")
	case flags.record != "" && flags.detach:
		return errors.New("--record records what passes through this command: leave out --detach, or record the process by execwire record")
	case flags.json != "" && flags.json != jsonEvents && flags.json != jsonResult:
		return fmt.Errorf("--json is %q: use --json or --json=result", flags.json)
	case flags.json == jsonResult && flags.detach:
		return errors.New("--json=result is the end of the process, which --detach does not wait for: use --json")
	case flags.json != "" && flags.terminal && flags.stdin:
		return errors.New("--json prints objects, and -t with -i is for a person: leave one of them out")
	}
	return nil
}

// runForeground runs the process on a server. passed are the signals received by the
// guardian of this program.
func runForeground(ctx context.Context, server *client.Client, flags runFlags, process *execwirev1.StartProcessRequest, passed <-chan syscall.Signal, std streams) error {
	if err := checkWritable(ctx, server, flags.confine, flags.server); err != nil {
		return err
	}
	options := client.RunOptions{Process: process, Stdout: std.out, Stderr: std.err}
	events := &runEvents{out: std.out}
	switch {
	case flags.json == jsonResult:
		options.Stdout = std.err
	case flags.json != "" && flags.terminal:
		options.Stdout, options.OnStarted = events.stream("terminal"), events.started
	case flags.json != "":
		options.Stdout, options.Stderr, options.OnStarted = events.stream("stdout"), events.stream("stderr"), events.started
	}
	if flags.stdin {
		options.Stdin = std.in
	}
	if flags.terminal && flags.stdin && isPersistent(flags.server) && term.IsTerminal(int(std.in.Fd())) {
		options.DetachKeys = flags.keys
		process.ProcessId = cmp.Or(process.GetProcessId(), uuid.NewString())
	}
	if flags.hasGrace {
		options.Grace = &flags.grace
	}
	how := terminal.Options{In: std.in, Out: std.out, Err: std.err, Terminal: flags.terminal, Stdin: flags.stdin,
		NoWaitDescendants: flags.noWaitDescendants, GuardianSignals: passed}
	run := server.Run
	if flags.record != "" {
		tee, err := recording.NewTee(flags.record, flags.recordFormat.Version, process)
		if err != nil {
			return &exitError{code: codeFailed, err: fmt.Errorf("--record: %w", err)}
		}
		how.OnResize = tee.Resized
		run = func(ctx context.Context, options client.RunOptions) (client.Exit, error) {
			exit, err := server.Run(ctx, tee.Wrap(options, flags.terminal, flags.recordInput))
			if failed := tee.End(exit, err); failed != nil {
				fmt.Fprintf(std.err, "execwire: the recording %s is not complete: %v\n", flags.record, failed)
			}
			return exit, err
		}
	}
	exit, killed, err := terminal.Run(ctx, options, how, run)
	if errors.Is(err, client.ErrDetached) {
		return explainAttach(err, process.GetProcessId(), std)
	}
	if err != nil {
		return explainRun(err, flags)
	}
	if flags.json != "" {
		event := map[string]string{jsonEvents: "exited"}[flags.json]
		if err := events.print(describeEnd(event, exit)); err != nil {
			return err
		}
	}
	return explainDenied(explainExit(exit, killed), exit, flags.confine, std)
}

// runDetached starts a process without an owner and prints its id.
func runDetached(command *cobra.Command, flags runFlags, process *execwirev1.StartProcessRequest, std streams) error {
	if err := checkPersistent(command, flags.server); err != nil {
		return err
	}
	if process.ProcessId == "" {
		process.ProcessId = uuid.NewString()
	}
	return withServer(command.Context(), flags.connectFlags, func(c *client.Client) error {
		if err := checkWritable(command.Context(), c, flags.confine, flags.server); err != nil {
			return err
		}
		started, err := c.StartDetached(command.Context(), process)
		if err != nil {
			return explainStart(err, flags)
		}
		if flags.json == "" {
			return printLine(std.out, started.GetProcessId())
		}
		return printJSON(std.out, struct {
			ID  string `json:"id"`
			PID int32  `json:"pid"`
		}{started.GetProcessId(), started.GetPid()})
	})
}

// explainStart adds a hint to explainRun if there was no answer.
func explainStart(err error, flags runFlags) error {
	explained := explainRun(err, flags)
	var exit *exitError
	if client.Reason(err) == 0 && errors.As(explained, &exit) && exit.hint == "" {
		exit.hint = "check whether it runs with: execwire ps -a"
	}
	return explained
}
