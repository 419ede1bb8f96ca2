package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/execwire/execwire/client"
)

type executorsFlags struct {
	connect connectFlags
	json    bool
}

func newExecutorsCommand(std streams) *cobra.Command {
	var flags executorsFlags
	command := &cobra.Command{
		Use:   "executors --hub URL [--json]",
		Short: "List the executors of a hub",
		Long: `executors lists the servers that a hub knows and that you may use, connected or
disconnected. To use one, add --hub and --executor to any command that connects to a
server.

With --json each is an object on its own line: id, name, version, labels, connected,
last_seen, epoch (the number of its registrations) and streams (connections to it
through the hub).

The hub is that of --hub, else of ` + hubVariable + `, else of the context.`,
		Example: `  execwire executors --hub https://hub.example.org --token-file ~/.execwire/hub.token
  execwire run --hub https://hub.example.org --executor build-1 -- make test`,
		Args: noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			if flags.connect.hub == "" {
				return usageError(command, errNoHub)
			}
			return executors(command.Context(), flags, std)
		},
	}
	addHubFlag(command, &flags.connect)
	command.Flags().BoolVar(&flags.json, "json", false, "print JSON objects, one per line")
	addCredentialFlags(command.Flags(), &flags.connect)
	return command
}

var errNoHub = errors.New("name the hub with --hub, " + hubVariable + " or a context")

// addHubFlag adds --hub to a command that makes requests at the hub itself.
func addHubFlag(command *cobra.Command, flags *connectFlags) {
	flags.onlyHub = true
	addFlagWithVariable(command.Flags(), &flags.hub, "hub", hubVariable, "the `URL` of the hub, https://HOST, or http://HOST:PORT on this host")
	addContextFlag(command, flags)
	command.PreRunE = flags.prepare("")
}

func executors(ctx context.Context, flags executorsFlags, std streams) error {
	list, err := client.Executors(ctx, flags.connect.hub, flags.connect.options()...)
	if err != nil {
		return explainDial(err)
	}
	table := newListing(std, flags.json, "ID", "STATE", "NAME", "VERSION", "STREAMS", "LABELS")
	for _, e := range list {
		if err := table.add(e, printable(e.ID), executorState(e), printable(e.Name), printable(e.Version), strconv.Itoa(e.Streams), labelText(e.Labels)); err != nil {
			return err
		}
	}
	return table.end()
}

func executorState(e client.Executor) string {
	switch {
	case e.Connected:
		return "connected"
	case e.LastSeen.IsZero():
		return "never seen"
	}
	return "seen " + age(time.Since(e.LastSeen)) + " ago"
}

func labelText(labels map[string]string) string {
	var pairs []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		pairs = append(pairs, printable(key+"="+labels[key]))
	}
	return strings.Join(pairs, ",")
}

type previewFlags struct {
	connect connectFlags
	expires time.Duration
	revoke  string
	list    bool
	json    bool
}

func newPreviewCommand(std streams) *cobra.Command {
	var flags previewFlags
	command := &cobra.Command{
		Use:   "preview PORT [--hub URL] [--executor ID] [--expires DURATION] [--json]\n  execwire preview --list [--hub URL] [--json]\n  execwire preview --revoke LINK [--hub URL]",
		Short: "Make a link to a port of an executor",
		Long: `preview prints a link for a browser to a port on which a process listens on an
executor of a hub, for example a development server. Anyone with the link may use the
port until it expires or is revoked, or the hub stops. It is for that port alone, and
works only while you may connect to the executor. The hub needs the setting
preview_domain; docs/hub.md describes previews.

--list prints the valid links that you made. --revoke ends one of them, and the
requests that use it.

With --json the output is an object: executor_id, port, and unless it was revoked url
and expires. --list prints one such object per line.`,
		Example: `  execwire preview 5173 --hub https://hub.example.org --executor build-1
  execwire preview 8080 --expires 8h --json | jq -r .url
  execwire preview --revoke 'https://5173--build-1.preview.example.org/?execwire-preview=…'`,
		Args: func(command *cobra.Command, arguments []string) error { return atMost(command, arguments, 1) },
		RunE: func(command *cobra.Command, arguments []string) error { return preview(command, flags, arguments, std) },
	}
	f := command.Flags()
	f.SortFlags = false
	addDuration(f, &flags.expires, "expires", time.Hour, "how long the link is valid, as in 30m")
	f.StringVar(&flags.revoke, "revoke", "", "end this `link`")
	f.BoolVar(&flags.list, "list", false, "list the valid links that you made")
	f.BoolVar(&flags.json, "json", false, "print JSON objects, one per line")
	addHubFlag(command, &flags.connect)
	addFlagWithVariable(f, &flags.connect.executor, "executor", executorVariable, "the `ID` of the executor")
	completeFlag(command, "executor", flags.connect.executors)
	command.ValidArgsFunction = cobra.NoFileCompletions
	addCredentialFlags(f, &flags.connect)
	return command
}

func preview(command *cobra.Command, flags previewFlags, arguments []string, std streams) error {
	ctx, connect := command.Context(), flags.connect
	revokes := command.Flags().Changed("revoke")
	switch {
	case connect.hub == "":
		return usageError(command, errNoHub)
	case flags.list && (len(arguments) > 0 || revokes || command.Flags().Changed("expires")):
		return usageError(command, errors.New("--list takes neither PORT nor --revoke nor --expires: it lists all links that you made"))
	case flags.list:
		return listPreviews(ctx, flags, std)
	case revokes && (len(arguments) > 0 || command.Flags().Changed("expires")):
		return usageError(command, errors.New("--revoke takes neither PORT nor --expires: the link says which port it is for"))
	case revokes:
		ended, err := client.RevokePreview(ctx, connect.hub, flags.revoke, connect.options()...)
		return printPreview(ended, err, fmt.Sprintf("revoked: port %d of executor %s", ended.Port, printable(ended.ExecutorID)), flags, std)
	case len(arguments) == 0:
		return usageError(command, errors.New("name a PORT; execwire ports lists those on which processes listen"))
	case connect.executor == "":
		return usageError(command, errors.New("name the executor with --executor, "+executorVariable+" or a context: execwire executors lists them"))
	case flags.expires <= 0:
		return usageError(command, fmt.Errorf("--expires is %v: it must be positive", flags.expires))
	}
	port, err := strconv.ParseUint(arguments[0], 10, 16)
	if err != nil || port == 0 {
		return usageError(command, fmt.Errorf("PORT is %q: it is a number from 1 to 65535", arguments[0]))
	}
	made, err := client.MakePreview(ctx, connect.hub, connect.executor, uint16(port), flags.expires, connect.options()...)
	return printPreview(made, err, printable(made.URL), flags, std)
}

func listPreviews(ctx context.Context, flags previewFlags, std streams) error {
	list, err := client.Previews(ctx, flags.connect.hub, flags.connect.options()...)
	if err != nil {
		return explainDial(err)
	}
	table := newListing(std, flags.json, "EXECUTOR", "PORT", "EXPIRES", "LINK")
	for _, made := range list {
		if err := table.add(made, printable(made.ExecutorID), strconv.Itoa(int(made.Port)), made.Expires.Local().Format(time.DateTime), printable(made.URL)); err != nil {
			return err
		}
	}
	return table.end()
}

// printPreview prints the answer of the hub.
func printPreview(answer client.Preview, err error, text string, flags previewFlags, std streams) error {
	switch {
	case err != nil:
		return explainDial(err)
	case flags.json:
		return printJSON(std.out, answer)
	}
	return printLine(std.out, text)
}
