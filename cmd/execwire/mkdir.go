package main

import (
	"github.com/spf13/cobra"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

func newMkdirCommand(std streams) *cobra.Command {
	var flags connectFlags
	var parents bool
	var mode string
	command := &cobra.Command{
		Use:   "mkdir [-p] [-m MODE] PATH...",
		Short: "Create directories on a server",
		Long: `mkdir creates directories.

The exit code is 1 if one of them could not be created.` + pathHelp,
		Example: `  execwire mkdir /srv/build
  execwire mkdir -p /srv/build/a/b
  execwire mkdir -m 700 /srv/keys`,
		Args: paths(1, unlimited),
		RunE: func(command *cobra.Command, arguments []string) error {
			hints := reasonHints{
				execwirev1.ErrorReason_ERROR_REASON_PATH_NOT_FOUND: "make the directories above it too with -p",
			}
			permissions, err := parseMode(mode)
			if err != nil {
				return usageError(command, err)
			}
			return withServer(command.Context(), flags, func(c *client.Client) error {
				return eachPath(std, arguments, hints, func(name string) error {
					if parents {
						return c.MkdirAll(command.Context(), name, permissions)
					}
					return c.Mkdir(command.Context(), name, permissions)
				})
			})
		},
	}
	command.Flags().BoolVarP(&parents, "parents", "p", false, "create parent directories too; accept an existing directory")
	command.Flags().StringVarP(&mode, "mode", "m", "", "the `mode` of the directory, in octal (default that of the server)")
	addServerFlags(command, &flags)
	return command
}
