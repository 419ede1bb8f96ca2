package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/spf13/cobra"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

func newMvCommand(std streams) *cobra.Command {
	var connect connectFlags
	m := &mover{std: std}
	command := &cobra.Command{
		Use:   "mv [-n] [-T] SOURCE... DEST",
		Short: "Rename and move files on a server",
		Long: `mv renames files, links and directories of a server, atomically. DEST is a directory
to move into if it is a directory, or if there are several sources; with -T it never
is. An existing file or empty directory is replaced.

To another file system, files are copied and then removed.

The exit code is 1 if one of the paths could not be moved.` + pathHelp,
		Example: `  execwire mv /srv/app.new /srv/app
  execwire mv -n a.log b.log /srv/logs/`,
		Args: sourcesAndDest("move"),
		RunE: func(command *cobra.Command, arguments []string) error {
			last := len(arguments) - 1
			var err error
			if m.dest, err = remotePath(arguments[last]); err != nil {
				return err
			}
			if m.noTargetDirectory && last > 1 {
				return usageError(command, errors.New("-T allows only one source"))
			}
			return withServer(command.Context(), connect, func(c *client.Client) error {
				m.client = c
				into := last > 1 || strings.HasSuffix(arguments[last], "/")
				if err := m.checkDest(command.Context(), into); err != nil {
					return explain(err, nil)
				}
				hints := reasonHints{
					execwirev1.ErrorReason_ERROR_REASON_DIRECTORY_NOT_EMPTY: "remove it first with: execwire rm -r",
				}
				return eachPath(std, arguments[:last], hints, func(name string) error { return m.move(command.Context(), name) })
			})
		},
	}
	f := command.Flags()
	f.BoolVarP(&m.noClobber, "no-clobber", "n", false, "do not replace existing files")
	f.BoolVarP(&m.noTargetDirectory, "no-target-directory", "T", false, "DEST is the new name, even if it is a directory")
	addServerFlags(command, &connect)
	return command
}

// mover is one run of mv.
type mover struct {
	noClobber, noTargetDirectory bool // flags

	client *client.Client
	std    streams
	dest   string
	into   bool // whether to move into the directory DEST
}

// checkDest determines whether DEST is a directory. must requires it.
func (m *mover) checkDest(ctx context.Context, must bool) error {
	if m.noTargetDirectory {
		return nil
	}
	info, err := m.client.Stat(ctx, m.dest)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	m.into = info.Metadata.GetType() == execwirev1.FileType_FILE_TYPE_DIRECTORY
	if must && !m.into {
		return &refusedFile{path: m.dest, why: "there is no such directory", hint: "make it with: execwire mkdir -p " + printable(m.dest)}
	}
	return nil
}

func (m *mover) move(ctx context.Context, source string) error {
	dest := m.dest
	if m.into {
		dest = path.Join(dest, path.Base(source))
	}
	rename := m.client.Rename
	if m.noClobber {
		rename = m.client.RenameNew
	}
	err := rename(ctx, source, dest)
	switch {
	case m.noClobber && errors.Is(err, fs.ErrExist):
		return nil
	case client.Reason(err) == execwirev1.ErrorReason_ERROR_REASON_CROSS_DEVICE:
		return m.moveAcross(ctx, source, dest)
	}
	return err
}

// moveAcross moves to another file system. It replaces as a rename does: a directory
// only if empty, and by a directory.
func (m *mover) moveAcross(ctx context.Context, source, dest string) error {
	there, err := m.client.Lstat(ctx, dest)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case m.noClobber:
		return nil
	default:
		if err := m.removeExisting(ctx, source, dest, there.Metadata); err != nil {
			return err
		}
	}
	omitted, err := m.client.Copy(ctx, source, dest, true)
	if err != nil {
		return err
	}
	if omitted > 0 {
		return &refusedFile{path: source, why: fmt.Sprintf("it was copied without its %d FIFOs, sockets and devices, and not removed", omitted),
			hint: "remove it with: execwire rm -r " + printable(source)}
	}
	return m.client.RemoveAll(ctx, source)
}

// removeExisting removes what a copy could not replace.
func (m *mover) removeExisting(ctx context.Context, source, dest string, there *execwirev1.FileMetadata) error {
	here, err := m.client.Lstat(ctx, source)
	if err != nil {
		return err
	}
	isDirectory := func(metadata *execwirev1.FileMetadata) bool {
		return metadata.GetType() == execwirev1.FileType_FILE_TYPE_DIRECTORY
	}
	switch {
	case isDirectory(there) && !isDirectory(here.Metadata):
		return &refusedFile{path: dest, why: "it is a directory"}
	case !isDirectory(there) && isDirectory(here.Metadata):
		return &refusedFile{path: dest, why: "it is not a directory"}
	case here.Metadata.GetType() == execwirev1.FileType_FILE_TYPE_REGULAR && there.GetType() == here.Metadata.GetType():
		return nil // it is overwritten
	}
	return m.client.Remove(ctx, dest)
}
