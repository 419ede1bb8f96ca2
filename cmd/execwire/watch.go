package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

type watchFlags struct {
	connect         connectFlags
	recursive, json bool
	ignore          []string
	settle          time.Duration
	count           int
}

func newWatchCommand(std streams) *cobra.Command {
	var flags watchFlags
	command := &cobra.Command{
		Use:   "watch [-r] [--ignore PATTERN]... [--settle DURATION] [-n NUMBER] [--json] [PATH]",
		Short: "Tell what happens in a directory of a server",
		Long: `watch tells what happens in a directory, without PATH in the current one, and with -r
in all below too, until a signal ends it: a line for each path, with "created",
"modified", "metadata" or "removed", a tab, and the path relative to the directory.
Changes are told when nothing has happened for a while, those of a path as one.

"overflow" says that changes were lost and that everything has to be looked at again,
"lost" and a path that a directory is not watched any more; why is said on stderr.
When PATH itself is gone, or the connection is lost, watch ends.

With --json every change is an object on a line of its own, with event (started,
created, modified, metadata, removed, overflow or lost), path, raw_path in base64 if
that is not UTF-8, type as stat --json has it, and of lost reason and message. The
first one is started: what happens after it is told.

The exit code is 0 after -n changes, 130 after a signal, and 125 for the rest.` + pathHelp,
		Example: `  execwire watch -r --ignore .git src
  execwire watch -n 1 /srv/inbox && make
  execwire watch -r --json | jq -r 'select(.event == "removed").path'`,
		Args: func(command *cobra.Command, arguments []string) error {
			if len(arguments) > 1 {
				return usageError(command, fmt.Errorf("unexpected argument %q", arguments[1]))
			}
			return pathArguments(0)(command, arguments)
		},
		RunE: func(command *cobra.Command, arguments []string) error {
			if err := notNegative(command, "settle", "number"); err != nil {
				return err
			}
			if len(arguments) == 0 {
				arguments = []string{"."}
			}
			name, err := remotePath(arguments[0])
			if err != nil {
				return err
			}
			options := client.WatchOptions{Recursive: flags.recursive, Ignore: flags.ignore}
			if command.Flags().Changed("settle") {
				options.Settle = &flags.settle
			}
			ctx, stop := interruptible(command.Context())
			defer stop()
			return interrupted(ctx, withServer(ctx, flags.connect, func(c *client.Client) error {
				w := &watcher{flags: flags, std: std}
				err := c.Watch(ctx, name, options, w.tell)
				if errors.Is(err, errEnough) {
					return nil
				}
				return explainFile(err, watchHints)
			}))
		},
	}
	f := command.Flags()
	f.BoolVarP(&flags.recursive, "recursive", "r", false, "what is below too")
	f.StringArrayVar(&flags.ignore, "ignore", nil, "leave out what a line of .gitignore with this `pattern` would; more than once for more")
	f.DurationVar(&flags.settle, "settle", 0, "how long nothing has to happen; 0 tells changes at once (default 50ms)")
	f.IntVarP(&flags.count, "number", "n", 0, "end after so many changes; 0 is never")
	f.BoolVar(&flags.json, "json", false, "print JSON objects, one per line")
	addServerFlags(command, &flags.connect)
	return command
}

// watchHints say what to do about what watch fails with.
var watchHints = map[execwirev1.ErrorReason]string{
	execwirev1.ErrorReason_ERROR_REASON_NOT_A_DIRECTORY: "watch the directory that it is in",
}

// errEnough ends a watch that has told as many changes as were asked for.
var errEnough = errors.New("there were as many changes as were asked for")

// watcher prints what one watch tells.
type watcher struct {
	flags watchFlags
	std   streams
	told  int // changes
}

// watchObject is an event, as --json prints it.
type watchObject struct {
	Event   string `json:"event"`
	Path    string `json:"path,omitempty"`
	RawPath []byte `json:"raw_path,omitempty"`
	Type    string `json:"type,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// tell prints an event. It ends the watch without an error to tell when there were
// as many changes as were asked for.
func (w *watcher) tell(event client.WatchEvent) error {
	switch {
	case event.Started && w.flags.json:
		return w.print(watchObject{Event: "started"}, "")
	case event.Overflow:
		return w.print(watchObject{Event: "overflow"}, "")
	case event.Lost != nil:
		if !w.flags.json {
			report(w.std.err, &exitError{err: fmt.Errorf("%s", event.Lost.Message)})
		}
		return w.print(watchObject{Event: "lost", Reason: enumWord(event.Lost.Reason, "WATCH_LOST_REASON_"), Message: event.Lost.Message}, event.Lost.Path)
	}
	for _, change := range event.Changes {
		object := watchObject{Event: enumWord(change.Kind, "WATCH_CHANGE_KIND_")}
		if change.Type != 0 {
			object.Type = typeWord(change.Type)
		}
		if err := w.print(object, change.Path); err != nil {
			return err
		}
		if w.told++; w.told == w.flags.count {
			return errEnough
		}
	}
	return nil
}

func (w *watcher) print(object watchObject, name string) error {
	if w.flags.json {
		object.Path, object.RawPath = textOf(name)
		return printJSON(w.std.out, object)
	}
	line := object.Event
	if name != "" || object.Event == "lost" {
		line += "\t" + nameFor(w.std.out, name)
	}
	return printLine(w.std.out, line)
}
