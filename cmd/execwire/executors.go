package main

import (
	"context"
	"errors"
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
		Short: "List the servers that are connected to a hub",
		Long: `executors lists the servers that a hub knows and that you may use: those that are
connected to it, and those that were. Use one with --hub and --executor, which every
command has that talks to a server.

With --json every one is an object on a line of its own: id, name, version, labels,
connected, last_seen, epoch (how often it was registered) and streams (connections
to it through the hub).

The hub is that of --hub, else of ` + hubVariable + `.`,
		Example: `  execwire executors --hub https://hub.example.org --token-file ~/.execwire/hub.token
  execwire run --hub https://hub.example.org --executor build-1 -- make test`,
		Args: noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			if flags.connect.hub == "" {
				return usageError(command, errors.New("name the hub with --hub or "+hubVariable))
			}
			return executors(command.Context(), flags, std)
		},
	}
	addFlagWithVariable(command, &flags.connect.hub, "hub", hubVariable, "the `URL` of the hub, https://HOST, or http://HOST:PORT on this host")
	command.Flags().BoolVar(&flags.json, "json", false, "print JSON objects, one per line")
	addCredentialFlags(command, &flags.connect)
	return command
}

func executors(ctx context.Context, flags executorsFlags, std streams) error {
	list, err := client.Executors(ctx, flags.connect.hub, flags.connect.options()...)
	if err != nil {
		return explainHub(err)
	}
	var rows [][]string
	for _, e := range list {
		if flags.json {
			if err := printJSON(std.out, e); err != nil {
				return err
			}
			continue
		}
		rows = append(rows, []string{shown(e.ID), executorState(e), shown(e.Name), shown(e.Version), strconv.Itoa(e.Streams), labelText(e.Labels)})
	}
	if flags.json {
		return nil
	}
	return printTable(std.out, []string{"ID", "STATE", "NAME", "VERSION", "STREAMS", "LABELS"}, rows)
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
		pairs = append(pairs, shown(key+"="+labels[key]))
	}
	return strings.Join(pairs, ",")
}
