// Command execwire starts and controls processes, as a server and as a client at a
// terminal.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/execwire/execwire/internal/buildinfo"
)

func main() {
	serverMain()
	os.Exit(execute(os.Args[1:], streams{in: os.Stdin, out: os.Stdout, err: os.Stderr}))
}

// buildVersion returns the version of this program.
func buildVersion() string { return buildinfo.Get().Version }

func newVersionCommand() *cobra.Command {
	var asJSON bool
	command := &cobra.Command{
		Use:   "version [--json]",
		Short: "Print the version of this program",
		Long: `version prints the version of this program, the commit it was built from, the version of
Go, and the system it was built for, as execwire --version does.

With --json it is one object: version, commit and date (of the commit; both are missing
if they are not known), go_version, operating_system and architecture.`,
		Example: `  execwire version
  execwire version --json`,
		Args: noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			if !asJSON {
				_, err := fmt.Fprintf(command.OutOrStdout(), "execwire %s\n", buildinfo.Get())
				return err
			}
			return json.NewEncoder(command.OutOrStdout()).Encode(buildinfo.Get())
		},
	}
	command.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return command
}
