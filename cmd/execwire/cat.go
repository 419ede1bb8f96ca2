package main

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/cmd/execwire/internal/complete"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

func newCatCommand(std streams) *cobra.Command {
	command := &cobra.Command{
		Use:   "cat [-n] [--offset BYTES] [--length BYTES] PATH...",
		Short: "Print files of a server",
		Long: `cat prints the content of files of any size, with -n as numbered lines. A lost
connection is resumed for 75 seconds; no byte is lost or repeated.

The exit code is 1 if a file could not be read.` + globHelp + pathHelp,
		Example: `  execwire cat /etc/os-release
  execwire cat build.log | grep error
  execwire cat -n main.go
  execwire cat --offset 1048576 --length 4096 image.bin | xxd`,
		Args: cobra.MatchAll(paths(1, unlimited), nonNegative("offset", "length")),
	}
	f := command.Flags()
	offset := f.Int64("offset", 0, "skip this many `bytes`")
	length := f.Int64("length", 0, "print at most this many `bytes` (default up to the end)")
	number := f.BoolP("number", "n", false, "number the lines, as cat -n does")
	onServer(command, serverUse{completes: complete.Paths, paths: everyPath, expands: true}, func(ctx context.Context, c *client.Client, arguments []string) error {
		options := client.DownloadOptions{Offset: *offset}
		if f.Changed("length") {
			options.Length = length
		}
		hints := reasonHints{
			execwirev1.ErrorReason_ERROR_REASON_IS_A_DIRECTORY: "list what is in it with: execwire ls",
		}
		var out io.Writer = std.out
		if *number {
			out = &lineNumberer{out: std.out}
		}
		return eachPath(std, arguments, hints, func(name string) error {
			_, err := c.Download(ctx, name, out, options)
			return err
		})
	})
	return command
}

// lineNumberer writes lines with their numbers.
type lineNumberer struct {
	out    io.Writer
	number int
	inLine bool // the last line has not ended
}

func (n *lineNumberer) Write(data []byte) (int, error) {
	var text bytes.Buffer
	for line := range bytes.Lines(data) {
		if !n.inLine {
			n.number++
			fmt.Fprintf(&text, "%6d\t", n.number)
		}
		text.Write(line)
		n.inLine = line[len(line)-1] != '\n'
	}
	if _, err := n.out.Write(text.Bytes()); err != nil {
		return 0, err
	}
	return len(data), nil
}
