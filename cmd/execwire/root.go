package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// Exit codes of execwire's own, beside those of the processes it runs.
const (
	codeSomeFailed    = 1
	codeWebsocketAuth = 1
	codeRemote        = 1
	codeUsage         = 2
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

// exitError ends the command with a code. What it says is printed unless it
// says nothing.
type exitError struct {
	code int
	// err may be nil: the code says it all.
	err error
	// hint is a line that says what to do next; may be empty.
	hint string
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// usageError is a mistake on the command line of command.
func usageError(command *cobra.Command, err error) error {
	return &exitError{
		code: codeUsage, err: err,
		hint: "see: " + command.CommandPath() + " --help",
	}
}

// execute runs the command line and returns the code to exit with.
func execute(arguments []string, std streams) int {
	root := newRootCommand(std)
	root.SetArgs(longFlags(arguments))
	root.SetIn(std.in)
	root.SetOut(std.out)
	root.SetErr(std.err)
	err := root.Execute()
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

// report prints what an error says, and what to do about it.
func report(w *os.File, exit *exitError) {
	if exit.err == nil {
		return
	}
	fmt.Fprintf(w, "execwire: %s\n", harmless(exit.err.Error()))
	if exit.hint != "" {
		fmt.Fprintf(w, "  %s\n", exit.hint)
	}
}

// harmless is a message without what could do something to a terminal, as names
// of files in it can.
func harmless(message string) string {
	var text strings.Builder
	for _, r := range strings.ToValidUTF8(message, string(utf8.RuneError)) {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) {
			text.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRune(r)
		text.WriteString(quoted[1 : len(quoted)-1])
	}
	return text.String()
}

func newRootCommand(std streams) *cobra.Command {
	root := &cobra.Command{
		Use:   "execwire",
		Short: "Start and control processes for somebody else",
		Long: `execwire starts and controls processes for somebody else: an agent, a CI job,
an editor, a person at a terminal. Nothing a process says is lost or said twice,
also when the connection is.`,
		Example: `  execwire serve
  execwire run --server grpc://127.0.0.1:7420 -- make test
  execwire run -ti -- bash
  execwire ps`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(command *cobra.Command, arguments []string) error {
			if len(arguments) > 0 {
				return usageError(command, fmt.Errorf("%q is not a command", arguments[0]))
			}
			return nil
		},
		RunE: func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	root.SetFlagErrorFunc(usageError)
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(
		newServeCommand(std), newRunCommand(std),
		newPsCommand(std), newLogsCommand(std), newAttachCommand(std), newWaitCommand(std), newKillCommand(std),
		newCpCommand(std), newMvCommand(std), newFindCommand(std), newWatchCommand(std), newLsCommand(std), newCatCommand(std), newPutCommand(std), newStatCommand(std), newMkdirCommand(std), newRmCommand(std),
		newSessionsCommand(std), newExecutorsCommand(std), newGatewayCommand(std), newForwardCommand(std), newDoctorCommand(std), newVersionCommand())
	return root
}

// noArguments refuses arguments the way flags are refused.
func noArguments(command *cobra.Command, arguments []string) error {
	if len(arguments) > 0 {
		return usageError(command, fmt.Errorf("unexpected argument %q", arguments[0]))
	}
	return nil
}
