// Package recording has the commands that record processes and play recordings.
package recording

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/client/recording"
	"github.com/execwire/execwire/internal/asciicast"
	"github.com/execwire/execwire/internal/flags"
)

// Program is what the commands need of their program.
type Program struct {
	// OnServer adds the flags that select a server to a command whose argument is a process,
	// and makes it call do with a client of that server, and a context that ends with SIGINT
	// and SIGTERM. It explains the errors of do.
	OnServer func(command *cobra.Command, do func(ctx context.Context, c *client.Client, arguments []string) error)
	// OneProcess accepts the id of one process, and Files one or more paths.
	OneProcess, Files cobra.PositionalArgs
	// AddSession adds the flag --session.
	AddSession func(command *cobra.Command, session *string)
	// UntilSignal calls do with a context that ends with SIGINT and SIGTERM.
	UntilSignal func(ctx context.Context, do func(context.Context) error) error
	// Usage is the error for an invalid command line.
	Usage func(*cobra.Command, error) error
	// In, Out and Err are the standard streams.
	In, Out, Err *os.File
}

// NewCommands returns the commands.
func NewCommands(p Program) []*cobra.Command { return []*cobra.Command{p.newRecord(), p.newPlay()} }

// Format is the value of a flag for the version of the format.
type Format struct {
	// Version is the version; 0: the flag was not given.
	Version int
}

// Type implements pflag.Value.
func (Format) Type() string { return "format" }

// String implements pflag.Value.
func (f *Format) String() string {
	if f.Version == 0 {
		return ""
	}
	return fmt.Sprintf("v%d", f.Version)
}

// Set implements pflag.Value.
func (f *Format) Set(text string) error {
	switch text {
	case "v2":
		f.Version = asciicast.V2
	case "v3":
		f.Version = asciicast.V3
	default:
		return errors.New("write v2 or v3")
	}
	return nil
}

// FormatHelp is the help of such a flag.
const FormatHelp = "the `version` of the format: v2, which every player reads, or v3"

// Create creates the file of a recording, which must not exist.
func Create(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		err = fmt.Errorf("%w: remove it first, or name another file", err)
	}
	return f, err
}

func (p Program) newRecord() *cobra.Command {
	var process client.ProcessRef
	var file string
	format := &Format{Version: asciicast.V2}
	command := &cobra.Command{
		Use:   "record [-o FILE] [--format v2|v3] ID",
		Short: "Record the terminal of a process",
		Long: `record writes what a process writes from now on, and the sizes of its terminal, to a
file in the format of asciinema, without owning or delaying the process: until that has
closed, or until Ctrl-C. The recording begins with what the terminal shows now. execwire
play, asciinema and its player for web pages play it. Where output is missing, because
record could not keep up, a marker says so.

The file is created with mode 0600 and must not exist; its default name is execwire-ID.cast.
To record from the start, use run --record; to write what a process has written until now
to such a file, logs --cast. What is typed is not recorded, unless the terminal echoes it.`,
		Example: `  execwire record build
  execwire record -o shell.cast --format v3 shell
  execwire record -o - shell | ssh host 'cat > shell.cast'`,
		Args: p.OneProcess,
	}
	f := command.Flags()
	f.StringVarP(&file, "output", "o", "", "the `file` to create; - is stdout")
	f.Var(format, "format", FormatHelp)
	p.AddSession(command, &process.SessionID)
	p.OnServer(command, func(ctx context.Context, c *client.Client, arguments []string) (err error) {
		process.ProcessID = arguments[0]
		if _, err := c.GetProcess(ctx, process); err != nil {
			return err // before the file is created
		}
		out := p.Out
		if file != "-" {
			file = cmp.Or(file, "execwire-"+asciicast.SafeName(process.ProcessID)+".cast")
			if out, err = Create(file); err != nil {
				return err
			}
			fmt.Fprintf(p.Err, "execwire: recording to %s; Ctrl-C ends it\n", file)
		}
		_, err = recording.Write(ctx, c, process, out, recording.Options{Version: format.Version, Live: true})
		if ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
			err = nil // the way to end it
		}
		if out != p.Out {
			err = errors.Join(err, out.Close())
		}
		if err != nil && ctx.Err() != nil { // OnServer prints that it was interrupted
			fmt.Fprintf(p.Err, "execwire: the recording is not complete: %v\n", err)
		}
		return err
	})
	return command
}

// minSpeed is the lowest speed of a player.
const minSpeed = 0.01

func (p Program) newPlay() *cobra.Command {
	player := player{in: p.In, out: p.Out, speed: 1}
	var idle time.Duration
	command := &cobra.Command{
		Use:   "play [-s SPEED] [-i DURATION] FILE...",
		Short: "Play a recording",
		Long: `play shows a recording in the format of asciinema, version 2 or 3, on this terminal, at
the speed at which it was made. Several files are played one after the other, as the
parts of a long recording that a server made. - is stdin. The space bar pauses, . shows
the next event during a pause, and q or Ctrl-C ends it; the terminal is restored.

A terminal should have at least the size of the recording, which play says if not. When
stdout is not a terminal, all output is printed at once.

A recording is written to the terminal as it is: play those that you trust.`,
		Example: `  execwire play build.cast
  execwire play -s 4 -i 1s shell.cast
  execwire play build.cast | tail`,
		Args: p.Files,
	}
	f := command.Flags()
	f.Float64VarP(&player.speed, "speed", "s", 1, "play this many `times` as fast")
	flags.DurationP(f, &idle, "idle-limit", "i", 0, "make pauses no longer than this; 0 is no limit (default that of the recording)")
	command.RunE = func(command *cobra.Command, arguments []string) error {
		if !(player.speed >= minSpeed) { // or no number
			return p.Usage(command, fmt.Errorf("--speed is a number, and %v or more", minSpeed))
		}
		if f.Changed("idle-limit") {
			player.idle = &idle
		}
		return p.UntilSignal(command.Context(), func(ctx context.Context) error {
			return player.run(ctx, func(ctx context.Context) error {
				for _, file := range arguments {
					if err := p.playFile(ctx, &player, file); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
	return command
}

func (p Program) playFile(ctx context.Context, player *player, file string) error {
	var from io.Reader = p.In
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		from = f
	}
	err := player.play(ctx, from)
	if _, ok := errors.AsType[*asciicast.Error](err); ok {
		return fmt.Errorf("%s: %w", file, err)
	}
	return err
}
