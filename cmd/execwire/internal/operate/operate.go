// Package operate has the commands that operate a running server.
package operate

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"github.com/execwire/execwire/client"
)

// Program is what the commands need of their program.
type Program struct {
	// OnServer adds the flags that select a server to a command, and makes the command call
	// do with a client of that server. It explains the errors of do.
	OnServer func(command *cobra.Command, do func(ctx context.Context, c *client.Client, arguments []string) error)
	// NoArguments refuses arguments.
	NoArguments cobra.PositionalArgs
	// OneArgument refuses more than one argument.
	OneArgument cobra.PositionalArgs
	// In and Out are the standard input and output.
	In, Out *os.File
}

// NewCommands returns the commands.
func NewCommands(p Program) []*cobra.Command {
	return []*cobra.Command{p.newReload(), p.newUpgrade(), p.newTop(), p.newDebug()}
}
