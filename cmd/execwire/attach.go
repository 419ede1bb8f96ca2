package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/cmd/execwire/internal/complete"
	"github.com/execwire/execwire/cmd/execwire/internal/terminal"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

type attachFlags struct {
	session  string
	stdin    bool
	readOnly bool
	keys     []byte // to detach
	since    uint64
	hasSince bool
	grace    time.Duration
	hasGrace bool
}

func newAttachCommand(std streams) *cobra.Command {
	var flags attachFlags
	var keys string
	command := &cobra.Command{
		Use:   "attach [-i|--read-only] [--detach-keys KEYS] ID",
		Short: "Attach to a process: own its output and, with -i, its input",
		Long: `attach becomes the owner of an existing process and continues like run: output,
signals, the size of the terminal, lost connections and exit codes work as there.
The previous owner gets an error. To observe without owning, use logs -f, or
--read-only: it shows the screen of a process with a terminal on this one, which may
have another size, until the process has closed or q or Ctrl-C is typed. The size is
that of the owner: what does not fit here is cut, at the right and at the bottom.

attach prints the retained output first. If the process has a terminal, that gets the
size of this one, attach paints its screen, and new output follows. --since-seq selects
another start, without painting.

With -i stdin is passed to the process; end of file closes the stdin of the process.
The keys of --detach-keys, typed in sequence, detach: the process continues without
an owner, and attach exits with 0. If stdin is not a terminal, keys arrive with the
Enter that follows them. SIGHUP, as from a closed terminal, detaches too, and so
does giving up a lost connection. If attach is killed, or its connection is lost and
not resumed, the server terminates the process after the grace period.

Exit codes of attach itself are those of run.`,
		Example: `  execwire attach build
  execwire attach -i shell
  execwire attach -i --detach-keys ctrl-a,d shell
  execwire attach --read-only shell`,
		Args: cobra.MatchAll(ids("process", 1), exclusive("read-only", "interactive"), exclusive("read-only", "detach-keys"),
			exclusive("read-only", "since-seq"), exclusive("read-only", "grace"), valid(func(*cobra.Command, []string) (err error) {
				flags.keys, err = parseKeys(keys)
				return err
			})),
	}
	f := command.Flags()
	f.BoolVarP(&flags.stdin, "interactive", "i", false, "pass stdin to the process")
	f.BoolVarP(&flags.readOnly, "read-only", "r", false, "show the screen of its terminal without owning it")
	f.StringVar(&keys, "detach-keys", defaultDetachKeys, detachKeysHelp)
	f.Uint64Var(&flags.since, "since-seq", 0, "start after the event with this `number`")
	addDuration(f, &flags.grace, "grace", 0,
		"the grace period: how long the server keeps the process when the connection is lost; 0 terminates it at once (default the server's, 30s)")
	addSessionFlag(command, &flags.session)
	onServer(command, serverUse{persistent: true, completes: complete.Process}, func(ctx context.Context, c *client.Client, arguments []string) error {
		if flags.readOnly {
			return view(ctx, c, client.ProcessRef{SessionID: flags.session, ProcessID: arguments[0]}, std)
		}
		flags.hasSince, flags.hasGrace = f.Changed("since-seq"), f.Changed("grace")
		return attach(ctx, c, flags, arguments[0], std)
	})
	return command
}

const (
	defaultDetachKeys = "ctrl-p,ctrl-q"
	detachKeysHelp    = "the `keys` that detach, separated by commas: ctrl-X or a character; empty for none"
)

func attach(ctx context.Context, c *client.Client, flags attachFlags, id string, std streams) error {
	process := client.ProcessRef{SessionID: flags.session, ProcessID: id, AfterSeq: flags.since}
	described, err := c.GetProcess(ctx, process)
	if err != nil {
		return err
	}
	hasTerminal := described.GetHasTerminal() && described.GetState() == execwirev1.ProcessState_PROCESS_STATE_RUNNING
	var repaint []byte
	redraw := false
	if hasTerminal && !flags.hasSince {
		process.AfterSeq = described.GetLastSeq()
		if size := terminal.Size(std.out); size != nil {
			answer, err := resizedScreen(ctx, c, process, size)
			if err != nil {
				redraw = true // a server without screens, or too large
			} else {
				repaint, process.AfterSeq = answer.GetRepaint(), answer.GetScreen().GetSeq()
			}
		}
	}
	options := client.RunOptions{Stdout: std.out, Stderr: std.err, OnGap: func(gap *execwirev1.OutputGap) {
		fmt.Fprintf(std.err, "execwire: %s bytes of output are missing here: they were evicted\n", droppedWords(gap))
	}}
	if flags.stdin {
		options.Stdin, options.DetachKeys = std.in, flags.keys
	}
	if flags.hasGrace {
		options.Grace = &flags.grace
	}
	how := terminal.Options{In: std.in, Out: std.out, Err: std.err, Terminal: hasTerminal, Stdin: flags.stdin,
		Redraw: redraw, Repaint: repaint, Hangup: make(chan struct{})}
	options.Detach = how.Hangup
	exit, killed, err := terminal.Run(ctx, options, how, func(ctx context.Context, options client.RunOptions) (client.Exit, error) {
		return c.Resume(ctx, process, options)
	})
	if err != nil {
		return explainAttach(err, id, std)
	}
	return explainExit(exit, killed)
}

// view shows the screen of a process until it has closed, or the user leaves.
func view(ctx context.Context, c *client.Client, process client.ProcessRef, std streams) error {
	if !term.IsTerminal(int(std.out.Fd())) {
		return &exitError{code: codeFailed, err: errors.New("--read-only: stdout is not a terminal"), hint: "use execwire screen --watch, or logs -f"}
	}
	return terminal.View(ctx, std.in, std.out, func(ctx context.Context, show func(*execwirev1.Screen) error) error {
		for shown, err := range c.WatchScreen(ctx, process, client.ScreenOptions{Styles: true}) {
			if err == nil {
				err = show(shown)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// resizedScreen gives the terminal of a process a size, and returns what it then shows.
func resizedScreen(ctx context.Context, c *client.Client, process client.ProcessRef, size *execwirev1.TerminalSize) (*execwirev1.GetScreenResponse, error) {
	if err := c.Resize(ctx, process, size.GetRows(), size.GetColumns()); err != nil {
		return nil, err
	}
	return c.GetScreen(ctx, process, client.ScreenOptions{Repaint: true})
}

// explainAttach explains why a process was not followed to its end. A detach is no
// failure.
func explainAttach(err error, id string, std streams) error {
	switch reason := client.Reason(err); {
	case errors.Is(err, client.ErrDetached):
		fmt.Fprintf(std.err, "\nexecwire: detached from %s, which continues; attach again with: execwire attach -i %s\n", printable(id), printable(id))
		return nil
	case reason == execwirev1.ErrorReason_ERROR_REASON_PROCESS_TAKEN_OVER:
		return &exitError{code: codeFailed, err: fmt.Errorf("another client took over %s", printable(id))}
	case reason == execwirev1.ErrorReason_ERROR_REASON_PROCESS_NOT_FOUND:
		return err
	default:
		return explainRun(err, runFlags{})
	}
}

// parseKeys parses keys such as "ctrl-p,q".
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

type screenFlags struct {
	session           string
	json, ansi, watch bool
}

func newScreenCommand(std streams) *cobra.Command {
	var flags screenFlags
	command := &cobra.Command{
		Use:   "screen [--ansi|--json] [--watch] ID",
		Short: "Print what the terminal of a process shows",
		Long: `screen prints the lines that the terminal of a process shows, without owning or
delaying it, also after its exit. With --ansi they have their colours.

With --json the screen is an object: seq (of the last event whose output is shown),
rows, columns, lines, cursor_row and cursor_column (from 0), cursor_visible, title,
alternate (as of full-screen programs). With --ansi the lines have escape sequences.

With --watch the screen is printed again after changes, at most 20 times a second,
until the process has closed; without --json, a terminal is cleared before.`,
		Example: `  execwire screen editor
  execwire screen --json installer | jq -r '.lines[.cursor_row]'
  execwire screen --watch --ansi top`,
		Args: ids("process", 1),
	}
	f := command.Flags()
	f.BoolVar(&flags.ansi, "ansi", false, "print escape sequences of colours and attributes")
	f.BoolVar(&flags.watch, "watch", false, "print it again when it changes, until the process has closed")
	f.BoolVar(&flags.json, "json", false, "print JSON objects, one per line")
	addSessionFlag(command, &flags.session)
	onServer(command, serverUse{persistent: true, completes: complete.Records}, func(ctx context.Context, c *client.Client, arguments []string) error {
		return printScreens(ctx, c, flags, client.ProcessRef{SessionID: flags.session, ProcessID: arguments[0]}, std)
	})
	return command
}

// printScreens prints the screen, and with --watch the later ones.
func printScreens(ctx context.Context, c *client.Client, flags screenFlags, process client.ProcessRef, std streams) error {
	options := client.ScreenOptions{Styles: flags.ansi}
	if !flags.watch {
		answer, err := c.GetScreen(ctx, process, options)
		if err != nil {
			return err
		}
		return printScreen(answer.GetScreen(), flags, std)
	}
	for shown, err := range c.WatchScreen(ctx, process, options) {
		if err == nil {
			err = printScreen(shown, flags, std)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// screenObject is the JSON output for a screen.
type screenObject struct {
	Seq           uint64   `json:"seq"`
	Rows          uint32   `json:"rows"`
	Columns       uint32   `json:"columns"`
	Lines         []string `json:"lines"`
	CursorRow     uint32   `json:"cursor_row"`
	CursorColumn  uint32   `json:"cursor_column"`
	CursorVisible bool     `json:"cursor_visible"`
	Title         string   `json:"title,omitempty"`
	Alternate     bool     `json:"alternate"`
}

func describeScreen(shown *execwirev1.Screen) *screenObject {
	object := &screenObject{
		Seq: shown.GetSeq(), Rows: shown.GetSize().GetRows(), Columns: shown.GetSize().GetColumns(),
		CursorRow: shown.GetCursor().GetRow(), CursorColumn: shown.GetCursor().GetColumn(), CursorVisible: shown.GetCursor().GetVisible(),
		Title: shown.GetTitle(), Alternate: shown.GetAlternate(),
	}
	for _, line := range shown.GetLines() {
		object.Lines = append(object.Lines, terminal.Styled(line))
	}
	return object
}

func printScreen(shown *execwirev1.Screen, flags screenFlags, std streams) error {
	if flags.json {
		return printJSON(std.out, describeScreen(shown))
	}
	var text strings.Builder
	if flags.watch && term.IsTerminal(int(std.out.Fd())) {
		text.WriteString("\x1b[H\x1b[2J")
	}
	for _, line := range shown.GetLines() {
		text.WriteString(terminal.Styled(line))
		text.WriteByte('\n')
	}
	_, err := std.out.WriteString(text.String())
	return err
}
