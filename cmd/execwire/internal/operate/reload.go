package operate

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

func (p Program) newReload() *cobra.Command {
	command := &cobra.Command{
		Use:   "reload [--json]",
		Short: "Make a server read its configuration again",
		Long: `reload makes a server read its configuration again, as SIGHUP does: the file of
--config and the files that settings name. No process and no connection ends.

Each setting that differs is printed with its old and its new value. Some change at once,
others need a restart, which is printed, too; docs/configuration.md says which. If a file
is invalid nothing changes, and the error has its line and column.

Environment variables and flags of the server override the file, as at its start. It
needs the permission admin.

With --json one object is printed: applied and needs_restart, lists of objects with
setting, old and new.`,
		Example: `  execwire reload
  execwire reload --server unix:///run/execwire/execwire.sock`,
		Args: p.NoArguments,
	}
	asJSON := command.Flags().Bool("json", false, "print a JSON object")
	p.OnServer(command, func(ctx context.Context, c *client.Client, _ []string) error {
		changed, err := c.Admin().Reload(ctx, &execwirev1.ReloadRequest{})
		if err != nil {
			return err
		}
		if *asJSON {
			return json.NewEncoder(p.Out).Encode(map[string][]settingObject{
				"applied": objectsOf(changed.GetApplied()), "needs_restart": objectsOf(changed.GetNeedsRestart()),
			})
		}
		return printChanges(p.Out, changed)
	})
	return command
}

// settingObject is the JSON output for a setting.
type settingObject struct {
	Setting string `json:"setting"`
	Old     string `json:"old"`
	New     string `json:"new"`
}

func objectsOf(changes []*execwirev1.SettingChange) []settingObject {
	list := []settingObject{}
	for _, c := range changes {
		list = append(list, settingObject{Setting: c.GetSetting(), Old: c.GetOldValue(), New: c.GetNewValue()})
	}
	return list
}

// printChanges prints a line for each setting that differs.
func printChanges(w io.Writer, changed *execwirev1.ReloadResponse) error {
	var b strings.Builder
	for _, list := range []struct {
		changes []*execwirev1.SettingChange
		note    string
	}{{changed.GetApplied(), ""}, {changed.GetNeedsRestart(), " (needs a restart)"}} {
		for _, c := range list.changes {
			fmt.Fprintf(&b, "%s: %s -> %s%s\n", shown(c.GetSetting()), shown(c.GetOldValue()), shown(c.GetNewValue()), list.note)
		}
	}
	if b.Len() == 0 {
		b.WriteString("no setting has changed\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// shown returns a text of the server for a terminal: in quotes if it is empty, as for none
// and for secrets, or has characters that cannot be printed.
func shown(text string) string {
	if text == "" || strings.ContainsFunc(text, func(c rune) bool { return !strconv.IsPrint(c) }) {
		return strconv.Quote(text)
	}
	return text
}
