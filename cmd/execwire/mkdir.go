package main

import (
	"github.com/spf13/cobra"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

type mkdirFlags struct {
	connect connectFlags
	parents bool
	mode    string
}

func newMkdirCommand(std streams) *cobra.Command {
	var flags mkdirFlags
	command := &cobra.Command{
		Use:   "mkdir [-p] [-m MODE] PATH...",
		Short: "Make directories on a server",
		Long: `mkdir makes directories.

The exit code is 1 when one of them could not be made.` + pathHelp,
		Example: `  execwire mkdir /srv/build
  execwire mkdir -p /srv/build/a/b
  execwire mkdir -m 700 /srv/keys`,
		Args: pathArguments(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			hints := map[execwirev1.ErrorReason]string{
				execwirev1.ErrorReason_ERROR_REASON_PATH_NOT_FOUND: "make the directories above it too with -p",
			}
			var permissions *uint32
			if flags.mode != "" {
				mode, err := parseMode(flags.mode)
				if err != nil {
					return usageError(command, err)
				}
				permissions = &mode
			}
			return withServer(command.Context(), flags.connect, func(c *client.Client) error {
				return eachPath(std, arguments, hints, func(name string) error {
					if flags.parents {
						return c.MkdirAll(command.Context(), name, permissions)
					}
					return c.Mkdir(command.Context(), name, permissions)
				})
			})
		},
	}
	command.Flags().BoolVarP(&flags.parents, "parents", "p", false, "the directories above too; one that exists is as good")
	command.Flags().StringVarP(&flags.mode, "mode", "m", "", "the `mode` of the directory, in octal (default that of the server)")
	addServerFlags(command, &flags.connect)
	return command
}
