package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/cmd/execwire/internal/complete"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

func newStatCommand(std streams) *cobra.Command {
	command := &cobra.Command{
		Use:   "stat [-L] [--sha256] [--json] PATH...",
		Short: "Describe files of a server",
		Long: `stat describes files of any type. Links are not followed unless -L is given.

With --json each file is an object on its own line: path, type (regular, directory,
symlink, fifo, socket, character_device or block_device), size, mode in octal,
user_id, group_id, link_count, modify_time, access_time, change_time, birth_time (if
the file system has it) and link_target. What is not UTF-8 is also in raw_path and
raw_link_target, in base64. With --sha256 the server reads regular files and adds
sha256.

The exit code is 1 if one of the paths could not be described.` + pathHelp,
		Example: `  execwire stat build.log
  execwire stat --json build.log | jq .size`,
		Args: paths(1, unlimited),
	}
	f := command.Flags()
	dereference := f.BoolP("dereference", "L", false, "follow links")
	sha256 := f.Bool("sha256", false, "also print the SHA-256 of the content")
	asJSON := f.Bool("json", false, "print JSON objects, one per line")
	onServer(command, serverUse{completes: complete.Paths}, func(ctx context.Context, c *client.Client, arguments []string) error {
		look := c.Lstat
		if *dereference {
			look = c.Stat
		}
		return eachPath(std, arguments, nil, func(name string) error {
			info, err := look(ctx, name)
			if err == nil && *sha256 && info.Metadata.GetType() == execwirev1.FileType_FILE_TYPE_REGULAR {
				info, err = c.StatSHA256(ctx, name)
			}
			if err != nil {
				return err
			}
			object := describeFile(name, info)
			if *asJSON {
				return printJSON(std.out, object)
			}
			return printStat(std, name, info, object)
		})
	})
	return command
}

func printStat(std streams, name string, info client.FileInfo, object fileObject) error {
	var text strings.Builder
	line := func(label, value string) {
		if value != "" {
			fmt.Fprintf(&text, "%9s: %s\n", label, value)
		}
	}
	moment := func(at time.Time) string {
		if at.IsZero() {
			return ""
		}
		return at.Local().Format("2006-01-02 15:04:05.000000000 -0700")
	}
	line("path", outputName(std.out, name))
	line("target", outputName(std.out, info.LinkTarget))
	line("type", strings.ReplaceAll(object.Type, "_", " "))
	line("size", fmt.Sprint(object.Size))
	line("mode", object.Mode+" "+modeString(info.Metadata))
	line("owner", fmt.Sprintf("user %d, group %d", object.UserID, object.GroupID))
	line("links", fmt.Sprint(object.LinkCount))
	line("modified", moment(object.ModifyTime))
	line("changed", moment(object.ChangeTime))
	line("accessed", moment(object.AccessTime))
	line("created", moment(object.BirthTime))
	line("sha256", object.SHA256)
	_, err := std.out.WriteString(text.String())
	return err
}
