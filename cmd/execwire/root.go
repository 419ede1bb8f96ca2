package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/cmd/execwire/internal/complete"
	"github.com/execwire/execwire/cmd/execwire/internal/console"
	"github.com/execwire/execwire/cmd/execwire/internal/operate"
	"github.com/execwire/execwire/cmd/execwire/internal/recording"
	"github.com/execwire/execwire/internal/buildinfo"
	"github.com/execwire/execwire/internal/commands"
)

// Exit codes of execwire itself, in addition to those of the processes it runs.
const (
	codeSomeFailed    = 1
	codeWebsocketAuth = 1
	codeRemote        = 1
	codeUsage         = 2
	codeUpgrade       = 123
	codeTimeout       = 124
	codeFailed        = 125
	codeNotExecutable = 126
	codeNotFound      = 127
	codeInterrupted   = 130
	codeBrokenPipe    = 141
)

// streams are the standard streams of the command.
type streams struct {
	in, out, err *os.File
}

// exitError ends the command with a code. Its message is printed unless empty.
type exitError struct {
	code int
	// err may be nil if the code is sufficient.
	err error
	// hint is a line that describes the next step; may be empty.
	hint string
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// usageError is the error for an invalid command line.
func usageError(command *cobra.Command, err error) error {
	return &exitError{
		code: codeUsage, err: err,
		hint: "see: " + command.CommandPath() + " --help",
	}
}

// execute runs the command line and returns the exit code.
func execute(arguments []string, std streams) int {
	root := newRootCommand(std)
	_ = os.Unsetenv(tokenVariable) // the commands have it, and programs that they start do not get it
	root.SetArgs(expandFlags(arguments))
	root.SetIn(std.in)
	root.SetOut(std.out)
	root.SetErr(std.err)
	at, err := commands.CheckName(root, arguments)
	if err != nil {
		err = usageError(at, err)
	} else {
		err = root.ExecuteContext(traceOf(os.Getenv))
	}
	if err == nil {
		return 0
	}
	var exit *exitError
	if !errors.As(err, &exit) {
		exit = &exitError{code: codeFailed, err: err}
	}
	report(std.err, exit)
	return exit.code
}

// traceOf returns a context whose calls belong to the trace of the environment, which has
// the standard names TRACEPARENT and TRACESTATE.
func traceOf(environment func(name string) string) context.Context {
	return client.WithTrace(context.Background(), environment("TRACEPARENT"), environment("TRACESTATE"))
}

// report prints an error and its hint.
func report(w *os.File, exit *exitError) {
	if exit.err == nil {
		return
	}
	fmt.Fprintf(w, "execwire: %s\n", sanitize(exit.err.Error()))
	if exit.hint != "" {
		fmt.Fprintf(w, "  %s\n", exit.hint)
	}
}

// completionHelp says what completions complete beside commands and flags.
const completionHelp = `Ids of processes, sessions and executors, and paths of a server, are completed by a
request to the server of --server, of --hub and --executor, or of --context, on the
line, in variables or of the current context. For cp, paths begin with a colon. If the
server does not answer within two seconds, nothing is completed.
`

// meanings returns what to use instead of words that are commands of similar programs.
func meanings() map[string]string {
	words := map[string]string{
		"exec":                          "use run to start a process, or attach -i to type into one that runs",
		"start spawn create":            "use run, or run --detach to leave the process running",
		"shell sh bash ssh login":       "use run -ti -- bash",
		"stop terminate":                "use kill, which sends SIGTERM, and SIGKILL after a timeout",
		"signal":                        "use kill -s SIGNAL",
		"inspect":                       "use ps -a --json",
		"list jobs status":              "use ps",
		"tail follow":                   "use logs -f for the output of a process, or cat for a file",
		"output":                        "use logs",
		"scp rsync sync copy push pull": "use cp, with a colon before paths of the server, as in :/tmp/file",
		"upload download":               "use cp, with a colon before paths of the server, as in :/tmp/file",
		"write tee":                     "use put, which writes stdin to a file",
		"read head less more":           "use cat",
		"dir tree":                      "use ls, or find for a whole tree",
		"delete del rmdir":              "use rm, with -r for a directory",
		"rename move":                   "use mv",
		"tunnel proxy":                  "use port-forward",
		"expose share":                  "use preview",
		"daemon server up":              "use serve",
		"info env":                      "use doctor",
		"nodes machines hosts":          "use executors",
	}
	meant := map[string]string{}
	for names, instead := range words {
		for name := range strings.FieldsSeq(names) {
			meant[name] = instead
		}
	}
	return meant
}

func newRootCommand(std streams) *cobra.Command {
	root := &cobra.Command{
		Use:   "execwire",
		Short: "Run processes and serve files for remote programs",
		Long: `execwire runs processes and serves files for remote programs: agents, CI jobs,
editors, people at a terminal. Output is delivered exactly once, across
disconnects.

Durations have a unit, as in 500ms or 1h30m, or are a number of seconds.

Completions for bash, zsh, fish and PowerShell: execwire completion --help.`,
		Example: `  execwire serve
  execwire run --server tcp://127.0.0.1:7420 -- make test
  execwire run -ti -- bash
  execwire ps`,
		Annotations:   meanings(),
		Version:       buildinfo.Get().String(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noArguments,
		RunE:          func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	root.SetFlagErrorFunc(func(command *cobra.Command, err error) error {
		return usageError(command, commands.ExplainFlag(command, err))
	})
	root.AddCommand(operate.NewCommands(operate.Program{
		OnServer: func(command *cobra.Command, do func(context.Context, *client.Client, []string) error) {
			onServer(command, serverUse{persistent: true}, do)
		},
		NoArguments: noArguments, OneArgument: paths(0, 1), In: std.in, Out: std.out,
	})...)
	root.AddCommand(console.NewCommand(console.Program{
		OnServer: func(command *cobra.Command, do func(context.Context, *client.Client, []string) error) {
			onServer(command, serverUse{persistent: true, untilSignal: true}, do)
		},
		NoArguments: noArguments, Usage: usageError, Out: std.out, Err: std.err,
	}))
	root.AddCommand(recording.NewCommands(recording.Program{
		OnServer: func(command *cobra.Command, do func(context.Context, *client.Client, []string) error) {
			onServer(command, serverUse{persistent: true, untilSignal: true, completes: complete.Process}, do)
		},
		OneProcess: ids("process", 1), Files: paths(1, unlimited), AddSession: addSessionFlag, UntilSignal: untilSignal,
		Usage: usageError, In: std.in, Out: std.out, Err: std.err,
	})...)
	root.AddCommand(
		newServeCommand(std), newRunCommand(std),
		newPsCommand(std), newLogsCommand(std), newAttachCommand(std), newScreenCommand(std), newWaitCommand(std), newKillCommand(std),
		newCpCommand(std), newMvCommand(std), newFindCommand(std), newWatchCommand(std), newLsCommand(std), newCatCommand(std), newPutCommand(std), newStatCommand(std), newMkdirCommand(std), newTouchCommand(std), newChmodCommand(std), newRmCommand(std),
		newContextCommand(std), newSessionsCommand(std), newExecutorsCommand(std), newPreviewCommand(std), newGatewayCommand(std), newForwardCommand(std), newPortsCommand(std), newPortForwardCommand(std), newDoctorCommand(std), newConfigCommand(),
		commands.NewCompletion(root, completionHelp, usageError), commands.NewMan(buildVersion(), usageError), newVersionCommand())
	return root
}
