package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/cmd/execwire/internal/complete"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

func newCatCommand(std streams) *cobra.Command {
	command := &cobra.Command{
		Use:   "cat [--offset BYTES] [--length BYTES] PATH...",
		Short: "Print files of a server",
		Long: `cat prints the content of files of any size. A lost connection is resumed for 75
seconds; no byte is lost or repeated.

The exit code is 1 if a file could not be read.` + pathHelp,
		Example: `  execwire cat /etc/os-release
  execwire cat build.log | grep error
  execwire cat --offset 1048576 --length 4096 image.bin | xxd`,
		Args: cobra.MatchAll(paths(1, unlimited), nonNegative("offset", "length")),
	}
	f := command.Flags()
	offset := f.Int64("offset", 0, "skip this many `bytes`")
	length := f.Int64("length", 0, "print at most this many `bytes` (default up to the end)")
	onServer(command, serverUse{completes: complete.Paths}, func(ctx context.Context, c *client.Client, arguments []string) error {
		options := client.DownloadOptions{Offset: *offset}
		if f.Changed("length") {
			options.Length = length
		}
		hints := reasonHints{
			execwirev1.ErrorReason_ERROR_REASON_IS_A_DIRECTORY: "list what is in it with: execwire ls",
		}
		return eachPath(std, arguments, hints, func(name string) error {
			_, err := c.Download(ctx, name, std.out, options)
			return err
		})
	})
	return command
}
