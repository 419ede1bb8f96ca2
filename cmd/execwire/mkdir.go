package main

import (
	"github.com/spf13/cobra"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

type mkdirFlags struct {
	connect connectFlags
	parents bool
}

func newMkdirCommand(std streams) *cobra.Command {
	var flags mkdirFlags
	command := &cobra.Command{
		Use:   "mkdir [-p] PATH...",
		Short: "Make directories on a server",
		Long: `mkdir makes directories.

The exit code is 1 when one of them could not be made.` + pathHelp,
		Example: `  execwire mkdir /srv/build
  execwire mkdir -p /srv/build/a/b`,
		Args: pathArguments(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			hints := map[execwirev1.ErrorReason]string{
				execwirev1.ErrorReason_ERROR_REASON_PATH_NOT_FOUND: "make the directories above it too with -p",
			}
			return withServer(command.Context(), flags.connect, func(c *client.Client) error {
				return eachPath(std, arguments, hints, func(name string) error {
					if flags.parents {
						return c.MkdirAll(command.Context(), name)
					}
					return c.Mkdir(command.Context(), name)
				})
			})
		},
	}
	command.Flags().BoolVarP(&flags.parents, "parents", "p", false, "the directories above too; one that exists is as good")
	addServerFlags(command, &flags.connect)
	return command
}
