package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

type rmFlags struct {
	connect               connectFlags
	recursive, dir, force bool
}

func newRmCommand(std streams) *cobra.Command {
	var flags rmFlags
	command := &cobra.Command{
		Use:   "rm [-r|-d] [-f] PATH...",
		Short: "Remove files and directories of a server",
		Long: `rm removes files, links, which it does not follow, and with -r directories with all
that is in them.

The root, and what is written with "." or ".." as its last part, is refused before
anything is removed.

The exit code is 1 when one of the paths could not be removed.` + pathHelp,
		Example: `  execwire rm build.log
  execwire rm -rf /srv/build`,
		Args: func(command *cobra.Command, arguments []string) error {
			if err := pathArguments(1)(command, arguments); err != nil {
				return err
			}
			for _, argument := range arguments {
				if err := mayRemove(argument); err != nil {
					return usageError(command, err)
				}
			}
			return nil
		},
		RunE: func(command *cobra.Command, arguments []string) error {
			hints := map[execwirev1.ErrorReason]string{
				execwirev1.ErrorReason_ERROR_REASON_DIRECTORY_NOT_EMPTY: "remove all that is in it too with -r",
			}
			return withServer(command.Context(), flags.connect, func(c *client.Client) error {
				return eachPath(std, arguments, hints, func(name string) error {
					err := remove(command.Context(), c, flags, name)
					if flags.force && errors.Is(err, fs.ErrNotExist) {
						return nil
					}
					return err
				})
			})
		},
	}
	f := command.Flags()
	f.BoolVarP(&flags.recursive, "recursive", "r", false, "directories with all that is in them")
	f.BoolVarP(&flags.dir, "dir", "d", false, "empty directories too")
	f.BoolVarP(&flags.force, "force", "f", false, "a path that is not there is as good")
	addServerFlags(command, &flags.connect)
	return command
}

// mayRemove refuses what nobody means to remove.
func mayRemove(argument string) error {
	if argument == ":" {
		return fmt.Errorf("%s is not removed, because it is the current directory: write its path", shown(argument))
	}
	name := strings.TrimRight(strings.TrimPrefix(argument, ":"), "/")
	switch last := name[strings.LastIndexByte(name, '/')+1:]; last {
	case ".", "..":
		return fmt.Errorf("%s is not removed, because it ends with %q: write the path of the directory by its name", shown(argument), last)
	case "":
		return fmt.Errorf("%s is not removed, because it is the root: name what is to be removed in it", shown(argument))
	}
	return nil
}

func remove(ctx context.Context, c *client.Client, flags rmFlags, name string) error {
	if !flags.recursive && flags.dir {
		return c.Remove(ctx, name)
	}
	// What is removed could be something else by then, but nothing that is not
	// empty without -r.
	info, err := c.Lstat(ctx, name)
	switch {
	case err != nil:
		return err
	case flags.recursive:
		return c.RemoveAll(ctx, name)
	case info.Metadata.GetType() == execwirev1.FileType_FILE_TYPE_DIRECTORY:
		return &refusedFile{path: name, why: "it is a directory", hint: "remove it with all that is in it with -r, or an empty one with -d"}
	}
	return c.Remove(ctx, name)
}
