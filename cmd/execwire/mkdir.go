package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

func newMkdirCommand(std streams) *cobra.Command {
	var parents bool
	var mode string
	var permissions *uint32
	command := &cobra.Command{
		Use:   "mkdir [-p] [-m MODE] PATH...",
		Short: "Create directories on a server",
		Long: `mkdir creates directories.

The exit code is 1 if one of them could not be created.` + pathHelp,
		Example: `  execwire mkdir /srv/build
  execwire mkdir -p /srv/build/a/b
  execwire mkdir -m 700 /srv/keys`,
		Args: cobra.MatchAll(paths(1, unlimited), valid(func(*cobra.Command, []string) (err error) {
			permissions, err = parseMode(mode)
			return err
		})),
	}
	command.Flags().BoolVarP(&parents, "parents", "p", false, "create parent directories too; accept an existing directory")
	command.Flags().StringVarP(&mode, "mode", "m", "", "the `mode` of the directory, in octal (default that of the server)")
	onServer(command, serverUse{}, func(ctx context.Context, c *client.Client, arguments []string) error {
		hints := reasonHints{
			execwirev1.ErrorReason_ERROR_REASON_PATH_NOT_FOUND: "make the directories above it too with -p",
		}
		return eachPath(std, arguments, hints, func(name string) error {
			if parents {
				return c.MkdirAll(ctx, name, permissions)
			}
			return c.Mkdir(ctx, name, permissions)
		})
	})
	return command
}
