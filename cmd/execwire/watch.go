package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/cmd/execwire/internal/complete"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

func newWatchCommand(std streams) *cobra.Command {
	var settle time.Duration
	w := &watcher{std: std}
	command := &cobra.Command{
		Use:   "watch [-r] [--ignore PATTERN]... [--settle DURATION] [-n NUMBER] [--json] [PATH]",
		Short: "Print the changes in a directory of a server",
		Long: `watch prints the changes in a directory, by default the home directory of the server's
user, and with -r in
everything below, until a signal ends it. Each line has "created", "modified",
"metadata" or "removed", a tab, and the path relative to the directory. Changes are
printed when there were none for a while; several changes of one path are one line.

"overflow" means that changes were dropped: list the directory again. "lost" and a
path mean that a directory is no longer watched; the reason is on stderr. watch ends
when PATH itself is removed, or the connection is lost.

With --json each change is an object on its own line, with event (started, created,
modified, metadata, removed, overflow or lost), path, raw_path in base64 if that is
not UTF-8, type as in stat --json, and for lost reason and message. The first object
has the event started: all later changes are printed.

The exit code is 0 after -n changes, 130 after a signal, and 125 for failures.` + pathHelp,
		Example: `  execwire watch -r --ignore .git src
  execwire watch -n 1 /srv/inbox && make
  execwire watch -r --json | jq -r 'select(.event == "removed").path'`,
		Args: cobra.MatchAll(paths(0, 1), nonNegative("settle", "number")),
	}
	f := command.Flags()
	f.BoolVarP(&w.Recursive, "recursive", "r", false, "watch everything below, too")
	f.StringArrayVar(&w.Ignore, "ignore", nil, "skip what matches this `pattern` of .gitignore; may be repeated")
	addDuration(f, &settle, "settle", 0, "print changes after this time without one; 0 is at once (default 50ms)")
	f.IntVarP(&w.count, "number", "n", 0, "end after this many changes; 0 is never")
	f.BoolVar(&w.json, "json", false, "print JSON objects, one per line")
	onServer(command, serverUse{untilSignal: true, completes: complete.Paths, paths: everyPath}, func(ctx context.Context, c *client.Client, arguments []string) error {
		if f.Changed("settle") {
			w.Settle = &settle
		}
		err := c.Watch(ctx, remotePath(arguments[0]), w.WatchOptions, w.handle)
		if errors.Is(err, errCountReached) {
			return nil
		}
		return explain(err, watchHints)
	})
	return command
}

// watchHints are hints for errors of watch.
var watchHints = reasonHints{
	execwirev1.ErrorReason_ERROR_REASON_NOT_A_DIRECTORY: "watch the directory that it is in",
}

// errCountReached ends a watch after the requested number of changes.
var errCountReached = errors.New("the requested number of changes was reached")

// watcher prints the events of one watch.
type watcher struct {
	client.WatchOptions
	json  bool
	count int // 0 is unlimited

	std     streams
	printed int // printed changes
}

// watchObject is the JSON output for an event.
type watchObject struct {
	Event   string `json:"event"`
	Path    string `json:"path,omitempty"`
	RawPath []byte `json:"raw_path,omitempty"`
	Type    string `json:"type,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// handle prints an event. It ends the watch with errCountReached after the requested
// number of changes.
func (w *watcher) handle(event client.WatchEvent) error {
	switch {
	case event.Started && w.json:
		return w.print(watchObject{Event: "started"}, "")
	case event.Overflow:
		return w.print(watchObject{Event: "overflow"}, "")
	case event.Lost != nil:
		if !w.json {
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
		if w.printed++; w.printed == w.count {
			return errCountReached
		}
	}
	return nil
}

func (w *watcher) print(object watchObject, name string) error {
	if w.json {
		object.Path, object.RawPath = textOf(name)
		return printJSON(w.std.out, object)
	}
	line := object.Event
	if name != "" || object.Event == "lost" {
		line += "\t" + outputName(w.std.out, name)
	}
	return printLine(w.std.out, line)
}
