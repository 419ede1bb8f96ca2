package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/cmd/execwire/internal/complete"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

type rmFlags struct {
	recursive, dir, force bool
}

func newRmCommand(std streams) *cobra.Command {
	var flags rmFlags
	command := &cobra.Command{
		Use:   "rm [-r|-d] [-f] PATH...",
		Short: "Remove files and directories of a server",
		Long: `rm removes files and links, and with -r directories with their content. It does not
follow links.

The root, and paths that end with "." or "..", are refused before anything is removed.

The exit code is 1 if one of the paths could not be removed.` + globHelp + pathHelp,
		Example: `  execwire rm build.log
  execwire rm -rf /srv/build`,
		Args: cobra.MatchAll(paths(1, unlimited), valid(func(_ *cobra.Command, arguments []string) error {
			for _, argument := range arguments {
				if err := mayRemove(argument); err != nil {
					return err
				}
			}
			return nil
		})),
	}
	f := command.Flags()
	f.BoolVarP(&flags.recursive, "recursive", "r", false, "remove directories with their content")
	f.BoolVarP(&flags.dir, "dir", "d", false, "remove empty directories too")
	f.BoolVarP(&flags.force, "force", "f", false, "ignore paths that do not exist")
	onServer(command, serverUse{completes: complete.Paths, paths: everyPath, expands: true}, func(ctx context.Context, c *client.Client, arguments []string) error {
		hints := reasonHints{
			execwirev1.ErrorReason_ERROR_REASON_DIRECTORY_NOT_EMPTY: "remove all that is in it too with -r",
		}
		return eachPath(std, arguments, hints, func(name string) error {
			err := remove(ctx, c, flags, name)
			if flags.force && errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		})
	})
	return command
}

// mayRemove rejects arguments that are certainly mistakes.
func mayRemove(argument string) error {
	if argument == ":" {
		return fmt.Errorf("%s is not removed, because it is the directory at which relative paths begin: write its path", printable(argument))
	}
	name := strings.TrimRight(strings.TrimPrefix(argument, ":"), "/")
	switch last := name[strings.LastIndexByte(name, '/')+1:]; last {
	case ".", "..":
		return fmt.Errorf("%s is not removed, because it ends with %q: write the path of the directory by its name", printable(argument), last)
	case "":
		return fmt.Errorf("%s is not removed, because it is the root: name what is to be removed in it", printable(argument))
	}
	return nil
}

func remove(ctx context.Context, c *client.Client, flags rmFlags, name string) error {
	if !flags.recursive && flags.dir {
		return c.Remove(ctx, name)
	}
	// The path may be replaced meanwhile; without -r, Remove still removes no directory
	// with content.
	info, err := c.Lstat(ctx, name)
	switch {
	case err != nil:
		return err
	case flags.recursive:
		return c.RemoveAll(ctx, name)
	case isDirectory(info):
		return &refusedFile{path: name, why: "it is a directory", hint: "remove it and its content with -r, or an empty one with -d"}
	}
	return c.Remove(ctx, name)
}
