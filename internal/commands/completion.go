// Package commands has the commands that both programs have: those that print settings,
// completions for shells, and manual pages.
package commands

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// UsageError makes the error of a program for an invalid command line.
type UsageError func(command *cobra.Command, err error) error

// shells are the shells with completions, each with its generator.
var shells = map[string]func(root *cobra.Command, w io.Writer) error{
	"bash":       func(root *cobra.Command, w io.Writer) error { return root.GenBashCompletionV2(w, true) },
	"zsh":        (*cobra.Command).GenZshCompletion,
	"fish":       func(root *cobra.Command, w io.Writer) error { return root.GenFishCompletion(w, true) },
	"powershell": (*cobra.Command).GenPowerShellCompletionWithDesc,
}

var shellNames = []string{"bash", "zsh", "fish", "powershell"}

// NewCompletion returns the command that prints completions for a shell. what describes
// what they complete, in whole paragraphs.
func NewCompletion(root *cobra.Command, what string, usage UsageError) *cobra.Command {
	name := root.Name()
	root.CompletionOptions.DisableDefaultCmd = true
	return &cobra.Command{
		Use:   "completion (bash|zsh|fish|powershell)",
		Short: "Print completions for a shell",
		Long: `completion prints a script with which a shell completes command lines of
` + name + `.
` + what + `
To load it, write in

  ~/.bashrc                  source <(` + name + ` completion bash)
  ~/.zshrc, after compinit   source <(` + name + ` completion zsh)
  config.fish                ` + name + ` completion fish | source
  $PROFILE                   ` + name + ` completion powershell | Out-String | Invoke-Expression

Packages install the scripts where the shells find them. For bash it needs the package
bash-completion.`,
		Example: `  ` + name + ` completion bash > /etc/bash_completion.d/` + name + `
  ` + name + ` completion zsh > "${fpath[1]}/_` + name + `"`,
		ValidArgs: shellNames,
		Args: func(command *cobra.Command, arguments []string) error {
			names := strings.Join(shellNames[:3], ", ") + " or " + shellNames[3]
			switch {
			case len(arguments) == 0:
				return usage(command, fmt.Errorf("name a shell: %s", names))
			case len(arguments) > 1:
				return usage(command, fmt.Errorf("unexpected argument %q", arguments[1]))
			case !slices.Contains(shellNames, arguments[0]):
				return usage(command, fmt.Errorf("there are no completions for %q: use %s", arguments[0], names))
			}
			return nil
		},
		RunE: func(command *cobra.Command, arguments []string) error {
			return shells[arguments[0]](command.Root(), command.OutOrStdout())
		},
	}
}
