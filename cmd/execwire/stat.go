package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

type statFlags struct {
	connect           connectFlags
	dereference, json bool
	sha256            bool
}

func newStatCommand(std streams) *cobra.Command {
	var flags statFlags
	command := &cobra.Command{
		Use:   "stat [-L] [--sha256] [--json] PATH...",
		Short: "Describe files of a server",
		Long: `stat describes files of any type, and links themselves unless -L is given.

With --json every file is an object on a line of its own: path, type (regular,
directory, symlink, fifo, socket, character_device or block_device), size, mode in
octal, user_id, group_id, link_count, modify_time, access_time, change_time,
birth_time, where the file system knows it, and link_target. What is not UTF-8 is in
raw_path and raw_link_target too, in base64. With --sha256 the server reads regular
files for their digest, sha256.

The exit code is 1 when one of the paths could not be described.` + pathHelp,
		Example: `  execwire stat build.log
  execwire stat --json build.log | jq .size`,
		Args: pathArguments(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			return withServer(command.Context(), flags.connect, func(c *client.Client) error {
				return eachPath(std, arguments, nil, func(name string) error {
					look := c.Lstat
					if flags.dereference {
						look = c.Stat
					}
					info, err := look(command.Context(), name)
					if err == nil && flags.sha256 && info.Metadata.GetType() == execwirev1.FileType_FILE_TYPE_REGULAR {
						info, err = c.StatSHA256(command.Context(), name)
					}
					if err != nil {
						return err
					}
					object := describeFile(name, info)
					if flags.json {
						return printJSON(std.out, object)
					}
					return printStat(std, name, info, object)
				})
			})
		},
	}
	f := command.Flags()
	f.BoolVarP(&flags.dereference, "dereference", "L", false, "what links lead to")
	f.BoolVar(&flags.sha256, "sha256", false, "the SHA-256 of the content too")
	f.BoolVar(&flags.json, "json", false, "print JSON objects, one per line")
	addServerFlags(command, &flags.connect)
	return command
}

func printStat(std streams, name string, info client.FileInfo, object fileObject) error {
	var text strings.Builder
	line := func(label, value string) {
		if value != "" {
			fmt.Fprintf(&text, "%9s: %s\n", label, value)
		}
	}
	moment := func(at *time.Time) string {
		if at == nil {
			return ""
		}
		return at.Local().Format("2006-01-02 15:04:05.000000000 -0700")
	}
	line("path", nameFor(std.out, name))
	line("leads to", nameFor(std.out, info.LinkTarget))
	line("type", strings.ReplaceAll(object.Type, "_", " "))
	line("size", fmt.Sprint(object.Size))
	line("mode", object.Mode+" "+modeString(info.Metadata))
	line("owner", fmt.Sprintf("user %d, group %d", object.UserID, object.GroupID))
	line("names", fmt.Sprint(object.LinkCount))
	line("modified", moment(object.ModifyTime))
	line("changed", moment(object.ChangeTime))
	line("read", moment(object.AccessTime))
	line("created", moment(object.BirthTime))
	line("sha256", object.SHA256)
	_, err := std.out.WriteString(text.String())
	return err
}
