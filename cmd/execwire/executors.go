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
		Short: "List the executors of a hub",
		Long: `executors lists the servers that a hub knows and that you may use, connected or
disconnected. To use one, add --hub and --executor to any command that connects to a
server.

With --json each is an object on its own line: id, name, version, labels, connected,
last_seen, epoch (the number of its registrations) and streams (connections to it
through the hub).

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
	addFlagWithVariable(command.Flags(), &flags.connect.hub, "hub", hubVariable, "the `URL` of the hub, https://HOST, or http://HOST:PORT on this host")
	command.Flags().BoolVar(&flags.json, "json", false, "print JSON objects, one per line")
	addCredentialFlags(command.Flags(), &flags.connect)
	return command
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
