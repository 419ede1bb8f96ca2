package main

import (
	"github.com/spf13/cobra"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

type catFlags struct {
	connect        connectFlags
	offset, length int64
}

func newCatCommand(std streams) *cobra.Command {
	var flags catFlags
	command := &cobra.Command{
		Use:   "cat [--offset BYTES] [--length BYTES] PATH...",
		Short: "Print files of a server",
		Long: `cat prints the content of files, one after the other, of any size. A lost
connection is resumed for a minute and a quarter, without a byte lost or repeated.

The exit code is 1 when one of the files could not be read.` + pathHelp,
		Example: `  execwire cat /etc/os-release
  execwire cat build.log | grep error
  execwire cat --offset 1048576 --length 4096 image.bin | xxd`,
		Args: pathArguments(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			if err := notNegative(command, "offset", "length"); err != nil {
				return err
			}
			options := client.DownloadOptions{Offset: flags.offset}
			if command.Flags().Changed("length") {
				options.Length = &flags.length
			}
			return withServer(command.Context(), flags.connect, func(c *client.Client) error {
				hints := map[execwirev1.ErrorReason]string{
					execwirev1.ErrorReason_ERROR_REASON_IS_A_DIRECTORY: "list what is in it with: execwire ls",
				}
				return eachPath(std, arguments, hints, func(name string) error {
					_, err := c.Download(command.Context(), name, std.out, options)
					return err
				})
			})
		},
	}
	f := command.Flags()
	f.Int64Var(&flags.offset, "offset", 0, "begin after so many `bytes`")
	f.Int64Var(&flags.length, "length", 0, "print so many `bytes` at most (default up to the end)")
	addServerFlags(command, &flags.connect)
	return command
}
