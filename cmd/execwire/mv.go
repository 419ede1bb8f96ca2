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
	"github.com/execwire/execwire/cmd/execwire/internal/complete"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

func newMvCommand(std streams) *cobra.Command {
	m := &mover{}
	command := &cobra.Command{
		Use:   "mv [-n] [-T] SOURCE... DEST",
		Short: "Rename and move files on a server",
		Long: `mv renames files, links and directories of a server, atomically. DEST is a directory
to move into if it is a directory, or if there are several sources; with -T it never
is. An existing file or empty directory is replaced.

A move to another file system copies the files and then removes them.

The exit code is 1 if one of the paths could not be moved.` + globHelp + pathHelp,
		Example: `  execwire mv /srv/app.new /srv/app
  execwire mv -n a.log b.log /srv/logs/`,
		Args: cobra.MatchAll(sourcesAndDest("move"), valid(func(_ *cobra.Command, arguments []string) error {
			if m.noTargetDirectory && len(arguments) > 2 {
				return errors.New("-T allows only one source")
			}
			return nil
		})),
	}
	f := command.Flags()
	f.BoolVarP(&m.noClobber, "no-clobber", "n", false, "do not replace existing files")
	f.BoolVarP(&m.noTargetDirectory, "no-target-directory", "T", false, "DEST is the new name, even if it is a directory")
	onServer(command, serverUse{completes: complete.Paths, paths: everyPath, base: &m.base}, func(ctx context.Context, c *client.Client, arguments []string) error {
		m.client = c
		last := len(arguments) - 1
		sources := expandPaths(ctx, c, m.base, arguments[:last])
		m.dest = remotePath(arguments[last])
		if err := m.checkDest(ctx, len(sources) > 1 || strings.HasSuffix(arguments[last], "/")); err != nil {
			return err
		}
		hints := reasonHints{
			execwirev1.ErrorReason_ERROR_REASON_DIRECTORY_NOT_EMPTY: "remove it first with: execwire rm -r",
		}
		return eachPath(std, sources, hints, func(name string) error { return m.move(ctx, name) })
	})
	return command
}

// mover is one run of mv.
type mover struct {
	noClobber, noTargetDirectory bool // flags

	client *client.Client
	base   string // see expandPaths
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
	m.into = isDirectory(info)
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
		if err := m.removeExisting(ctx, source, dest, there); err != nil {
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
func (m *mover) removeExisting(ctx context.Context, source, dest string, there client.FileInfo) error {
	here, err := m.client.Lstat(ctx, source)
	if err != nil {
		return err
	}
	switch {
	case isDirectory(there) && !isDirectory(here):
		return &refusedFile{path: dest, why: "it is a directory"}
	case !isDirectory(there) && isDirectory(here):
		return &refusedFile{path: dest, why: "it is not a directory"}
	case here.Metadata.GetType() == execwirev1.FileType_FILE_TYPE_REGULAR && there.Metadata.GetType() == here.Metadata.GetType():
		return nil // it is overwritten
	}
	return m.client.Remove(ctx, dest)
}
