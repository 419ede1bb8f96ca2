// Command execwire starts and controls processes, as a server and as a client at a
// terminal.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/execwire/execwire/daemon"
)

func main() {
	daemon.Main()
	os.Exit(execute(os.Args[1:], streams{in: os.Stdin, out: os.Stdout, err: os.Stderr}))
}

// version is set by the linker in releases.
var version = ""

// buildVersion returns the version of the release, or of the module when installed by
// the go command, or "devel".
func buildVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}

func newVersionCommand() *cobra.Command {
	var asJSON bool
	command := &cobra.Command{
		Use:   "version [--json]",
		Short: "Print the version of this program",
		Long: `version prints the version of this program, of Go, and the system it was built for.

With --json it is one object: version, go_version, operating_system and architecture.`,
		Example: `  execwire version
  execwire version --json`,
		Args: noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			if !asJSON {
				_, err := fmt.Fprintf(command.OutOrStdout(), "execwire %s (%s, %s/%s)\n",
					buildVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
				return err
			}
			return json.NewEncoder(command.OutOrStdout()).Encode(map[string]string{
				"version":          buildVersion(),
				"go_version":       runtime.Version(),
				"operating_system": runtime.GOOS,
				"architecture":     runtime.GOARCH,
			})
		},
	}
	command.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return command
}
