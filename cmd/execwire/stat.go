package main

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/cmd/execwire/internal/complete"
	"github.com/execwire/execwire/cmd/execwire/internal/filemode"
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

The exit code is 1 if one of the paths could not be described.` + globHelp + pathHelp,
		Example: `  execwire stat build.log
  execwire stat --json build.log | jq .size`,
		Args: paths(1, unlimited),
	}
	f := command.Flags()
	dereference := f.BoolP("dereference", "L", false, "follow links")
	sha256 := f.Bool("sha256", false, "also print the SHA-256 of the content")
	asJSON := f.Bool("json", false, "print JSON objects, one per line")
	onServer(command, serverUse{completes: complete.Paths, paths: everyPath, expands: true}, func(ctx context.Context, c *client.Client, arguments []string) error {
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

func newChmodCommand(std streams) *cobra.Command {
	var change filemode.Change
	command := &cobra.Command{
		Use:   "chmod [-R] MODE PATH...",
		Short: "Change the permissions of files of a server",
		Long: `chmod changes the permission bits of files. MODE is octal, or changes separated by
commas as in u+x,go-w: of u (owner), g (group), o (others) or a (all, also without a
letter), + adds, - removes and = sets r, w, x, s, t, or X, which is x for directories and
for files that have one. The umask does not matter.

With -R it changes directories with their content. A link is followed if it is named, and
left alone in a directory.

The exit code is 1 if one of the files could not be changed.` + globHelp + pathHelp,
		Example: `  execwire chmod 600 /srv/keys/id
  execwire chmod +x ':/srv/bin/*'
  execwire chmod -R go=rX /srv/www`,
		Args: cobra.MatchAll(func(command *cobra.Command, arguments []string) error {
			if len(arguments) == 1 {
				return usageError(command, fmt.Errorf("name a path to give the mode %q to", arguments[0]))
			}
			return paths(2, unlimited)(command, arguments)
		}, valid(func(_ *cobra.Command, arguments []string) (err error) {
			change, err = filemode.Parse(arguments[0])
			return err
		})),
	}
	recursive := command.Flags().BoolP("recursive", "R", false, "change directories with their content")
	onServer(command, serverUse{completes: complete.Paths, paths: pathsAfterFirst, expands: true}, func(ctx context.Context, c *client.Client, arguments []string) error {
		m := &modeChanger{client: c, change: change, std: std}
		err := eachPath(std, arguments[1:], nil, func(name string) error {
			if *recursive {
				return m.setAll(ctx, name)
			}
			return m.set(ctx, name, nil)
		})
		if err == nil && m.failed {
			return &exitError{code: codeSomeFailed}
		}
		return err
	})
	return command
}

// modeChanger is one run of chmod.
type modeChanger struct {
	client *client.Client
	change filemode.Change
	std    streams
	failed bool // whether changing a file in a directory failed, which was reported
}

// set changes a file. It follows links if its metadata is not known.
func (m *modeChanger) set(ctx context.Context, name string, known *client.FileInfo) error {
	changes := client.MetadataChanges{NoSymlinks: known != nil}
	if known == nil && !m.change.IsAbsolute() {
		info, err := m.client.Stat(ctx, name)
		if err != nil {
			return err
		}
		known = &info
	}
	bits := m.change.Apply(0, false)
	if known != nil {
		bits = m.change.Apply(known.Metadata.GetMode(), isDirectory(*known))
	}
	changes.Permissions = &bits
	return m.client.SetMetadata(ctx, name, changes)
}

// setAll changes a file, or a directory and everything in it but links: a directory after
// its content, and all after it was listed.
func (m *modeChanger) setAll(ctx context.Context, name string) error {
	info, err := m.client.Stat(ctx, name)
	if err != nil {
		return err
	}
	if !isDirectory(info) {
		return m.set(ctx, name, nil)
	}
	if name, err = m.client.RealPath(ctx, name); err != nil {
		return err
	}
	var entries []client.WalkEntry
	options := client.WalkOptions{Metadata: true, OnFailed: func(below string, err error) {
		m.report(&refusedFile{path: path.Join(name, below), why: err.Error()})
	}}
	if err := m.client.Walk(ctx, name, options, func(entry client.WalkEntry) error {
		entries = append(entries, entry)
		return nil
	}); err != nil {
		return err
	}
	for _, entry := range slices.Backward(entries) {
		if entry.Type == execwirev1.FileType_FILE_TYPE_SYMLINK || entry.Metadata == nil {
			continue
		}
		switch err := m.set(ctx, path.Join(name, entry.Path), &entry.FileInfo); {
		case err == nil:
		case isFatal(err):
			return err
		default:
			m.report(err)
		}
	}
	return m.set(ctx, name, &info)
}

func (m *modeChanger) report(err error) {
	m.failed = true
	report(m.std.err, explain(err, nil))
}
