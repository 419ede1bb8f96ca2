package operate

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

func (p Program) newReload() *cobra.Command {
	command := &cobra.Command{
		Use:   "reload",
		Short: "Make a server read its configuration again",
		Long: `reload makes a server read its configuration again, as SIGHUP does: the file of
--config and the files that settings name. No process and no connection ends.

Each setting that differs is printed with its old and its new value. Some change at once,
others need a restart, which is printed, too; docs/configuration.md says which. If a file
is invalid nothing changes, and the error has its line and column.

Environment variables and flags of the server override the file, as at its start. It
needs the permission admin.`,
		Example: `  execwire reload
  execwire reload --server unix:///run/execwire/execwire.sock`,
		Args: p.NoArguments,
	}
	p.OnServer(command, func(ctx context.Context, c *client.Client, _ []string) error {
		changed, err := c.Admin().Reload(ctx, &execwirev1.ReloadRequest{})
		if err != nil {
			return err
		}
		return printChanges(p.Out, changed)
	})
	return command
}

// printChanges prints a line for each setting that differs.
func printChanges(w io.Writer, changed *execwirev1.ReloadResponse) error {
	var b strings.Builder
	for _, list := range []struct {
		changes []*execwirev1.SettingChange
		note    string
	}{{changed.GetApplied(), ""}, {changed.GetNeedsRestart(), " (needs a restart)"}} {
		for _, c := range list.changes {
			fmt.Fprintf(&b, "%s: %s -> %s%s\n", c.GetSetting(), shown(c.GetOldValue()), shown(c.GetNewValue()), list.note)
		}
	}
	if b.Len() == 0 {
		b.WriteString("no setting has changed\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// shown returns a value of a setting, which is empty for none and for secrets.
func shown(value string) string {
	if value == "" {
		return `""`
	}
	return value
}
