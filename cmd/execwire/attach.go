package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

type attachFlags struct {
	remote   remoteFlags
	stdin    bool
	keys     string
	since    uint64
	hasSince bool
	grace    time.Duration
	hasGrace bool
}

func newAttachCommand(std streams) *cobra.Command {
	var flags attachFlags
	command := &cobra.Command{
		Use:   "attach [-i] [--detach-keys KEYS] ID",
		Short: "Take a process up: own its output, and with -i its input",
		Long: `attach takes up a process that is already there and goes on like run: output,
signals, the size of the terminal, lost connections and the exit code are as there.
Whoever owned the process before is told that it was taken over. To only look, use
logs -f.

It begins with the output that is kept, except at a terminal: there it begins with
what comes, and the program is told to draw itself anew. --since-seq chooses.

With -i stdin is passed on: its end closes the stdin of the process. The keys of
--detach-keys, typed one after the other, leave the process running without an
owner, and attach ends with code 0. Without a terminal keys arrive with the Enter
that follows them. SIGHUP, as from a terminal that is closed, does the same, and
when attach gives up the process is left alone, too. Only when attach is killed, or
its connection is lost for good, is the process lost: the server terminates it
after the grace.

Exit codes of attach itself are those of run.`,
		Example: `  execwire attach build
  execwire attach -i shell
  execwire attach -i --detach-keys ctrl-a,d shell`,
		Args: idArguments("process", 1),
		RunE: func(command *cobra.Command, arguments []string) error {
			flags.hasSince = command.Flags().Changed("since-seq")
			flags.hasGrace = command.Flags().Changed("grace")
			keys, err := parseKeys(flags.keys)
			if err != nil {
				return usageError(command, err)
			}
			return withServer(command.Context(), flags.remote.connect, func(c *client.Client) error {
				return attach(command.Context(), c, flags, keys, arguments[0], std)
			})
		},
	}
	f := command.Flags()
	f.BoolVarP(&flags.stdin, "interactive", "i", false, "pass stdin on")
	f.StringVar(&flags.keys, "detach-keys", "ctrl-p,ctrl-q",
		"the `keys` that leave the process, with commas between them: ctrl-X or a character; empty for none")
	f.Uint64Var(&flags.since, "since-seq", 0, "begin after the event with this `number`")
	f.DurationVar(&flags.grace, "grace", 0,
		"how long the server keeps the process when the connection is lost; 0 ends it at once (default the server's, 30s)")
	addRemoteFlags(command, &flags.remote)
	return command
}

func attach(ctx context.Context, c *client.Client, flags attachFlags, keys []byte, id string, std streams) error {
	process := client.ProcessRef{SessionID: flags.remote.session, ProcessID: id, AfterSeq: flags.since}
	described, err := c.GetProcess(ctx, process)
	if err != nil {
		return err
	}
	terminal := described.GetHasTerminal() && described.GetState() == execwirev1.ProcessState_PROCESS_STATE_RUNNING
	if terminal && !flags.hasSince {
		process.AfterSeq = described.GetLastSeq()
	}
	options := client.RunOptions{Stdout: std.out, Stderr: std.err, OnGap: func(gap *execwirev1.OutputGap) {
		fmt.Fprintf(std.err, "execwire: %s bytes of output are missing here: they are not kept any more\n", droppedWords(gap))
	}}
	if flags.stdin {
		options.Stdin, options.DetachKeys = std.in, keys
	}
	if flags.hasGrace {
		options.Grace = &flags.grace
	}
	how := attention{terminal: terminal, stdin: flags.stdin, redraw: terminal && !flags.hasSince, hangup: make(chan struct{})}
	options.Detach = how.hangup
	exit, killed, err := attended(ctx, options, how, std, func(ctx context.Context, options client.RunOptions) (client.Exit, error) {
		return c.Resume(ctx, process, options)
	})
	if err != nil {
		return explainAttach(err, id, std)
	}
	return explainExit(exit, killed)
}

// explainAttach says why a process was not followed to its end, of which being
// left is no failure.
func explainAttach(err error, id string, std streams) error {
	switch reason := client.Reason(err); {
	case errors.Is(err, client.ErrDetached):
		fmt.Fprintf(std.err, "\nexecwire: detached from %s, which goes on; come back with: execwire attach -i %s\n", shown(id), shown(id))
		return nil
	case reason == execwirev1.ErrorReason_ERROR_REASON_PROCESS_TAKEN_OVER:
		return &exitError{code: codeFailed, err: fmt.Errorf("somebody else has taken %s over", shown(id))}
	case reason == execwirev1.ErrorReason_ERROR_REASON_PROCESS_NOT_FOUND:
		return err
	default:
		return explainRun(err, runFlags{})
	}
}

// parseKeys takes keys such as "ctrl-p,q".
func parseKeys(text string) ([]byte, error) {
	if text == "" {
		return nil, nil
	}
	var keys []byte
	for name := range strings.SplitSeq(text, ",") {
		letter, control := strings.CutPrefix(strings.ToLower(name), "ctrl-")
		switch {
		case control && len(letter) == 1 && (letter[0] >= 'a' && letter[0] <= 'z' || strings.Contains(`@[\]^_`, letter)):
			keys = append(keys, letter[0]&0x1f)
		case !control && len(name) == 1:
			keys = append(keys, name[0])
		default:
			return nil, fmt.Errorf("--detach-keys: %q is not a key: use ctrl-a to ctrl-z, ctrl-@ [ \\ ] ^ _, or one character", name)
		}
	}
	return keys, nil
}
