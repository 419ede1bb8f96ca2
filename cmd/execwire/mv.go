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

type mvFlags struct {
	connect                      connectFlags
	noClobber, noTargetDirectory bool
}

func newMvCommand(std streams) *cobra.Command {
	var flags mvFlags
	command := &cobra.Command{
		Use:   "mv [-n] [-T] SOURCE... DEST",
		Short: "Rename and move files on a server",
		Long: `mv gives files, links and directories of a server other names, in one step. DEST is a
directory to move into if it is one, or there are several sources; with -T it is
never. What is there is replaced, but not a directory that has something in it.

To another file system things are copied, and removed when they are copied.

The exit code is 1 when one of the paths could not be moved.` + pathHelp,
		Example: `  execwire mv /srv/app.new /srv/app
  execwire mv -n a.log b.log /srv/logs/`,
		Args: func(command *cobra.Command, arguments []string) error {
			if len(arguments) == 1 {
				return usageError(command, fmt.Errorf("name where to move %q to", arguments[0]))
			}
			return pathArguments(2)(command, arguments)
		},
		RunE: func(command *cobra.Command, arguments []string) error {
			last := len(arguments) - 1
			dest, err := remotePath(arguments[last])
			if err != nil {
				return err
			}
			if flags.noTargetDirectory && last > 1 {
				return usageError(command, errors.New("with -T there is one source"))
			}
			return withServer(command.Context(), flags.connect, func(c *client.Client) error {
				m := &mover{client: c, flags: flags, dest: dest, std: std}
				into := last > 1 || strings.HasSuffix(arguments[last], "/")
				if err := m.look(command.Context(), into); err != nil {
					return explainFile(err, nil)
				}
				hints := map[execwirev1.ErrorReason]string{
					execwirev1.ErrorReason_ERROR_REASON_DIRECTORY_NOT_EMPTY: "remove it first with: execwire rm -r",
				}
				return eachPath(std, arguments[:last], hints, func(name string) error { return m.move(command.Context(), name) })
			})
		},
	}
	f := command.Flags()
	f.BoolVarP(&flags.noClobber, "no-clobber", "n", false, "leave what is there as it is")
	f.BoolVarP(&flags.noTargetDirectory, "no-target-directory", "T", false, "DEST is the new name, also if it is a directory")
	addServerFlags(command, &flags.connect)
	return command
}

// mover is one run of mv.
type mover struct {
	client *client.Client
	flags  mvFlags
	std    streams
	dest   string
	into   bool // whether DEST is a directory to move into
}

// look finds out whether DEST is a directory. must says that it has to be one.
func (m *mover) look(ctx context.Context, must bool) error {
	if m.flags.noTargetDirectory {
		return nil
	}
	info, err := m.client.Stat(ctx, m.dest)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	m.into = info.Metadata.GetType() == execwirev1.FileType_FILE_TYPE_DIRECTORY
	if must && !m.into {
		return &refusedFile{path: m.dest, why: "there is no such directory", hint: "make it with: execwire mkdir -p " + shown(m.dest)}
	}
	return nil
}

func (m *mover) move(ctx context.Context, source string) error {
	dest := m.dest
	if m.into {
		dest = path.Join(dest, path.Base(source))
	}
	rename := m.client.Rename
	if m.flags.noClobber {
		rename = m.client.RenameNew
	}
	err := rename(ctx, source, dest)
	switch {
	case m.flags.noClobber && errors.Is(err, fs.ErrExist):
		return nil
	case client.Reason(err) == execwirev1.ErrorReason_ERROR_REASON_CROSS_DEVICE:
		return m.moveAcross(ctx, source, dest)
	}
	return err
}

// moveAcross moves to another file system. What is there is replaced as by a
// rename: a directory only if it is empty, and by a directory.
func (m *mover) moveAcross(ctx context.Context, source, dest string) error {
	there, err := m.client.Lstat(ctx, dest)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case m.flags.noClobber:
		return nil
	default:
		if err := m.clear(ctx, source, dest, there.Metadata); err != nil {
			return err
		}
	}
	omitted, err := m.client.Copy(ctx, source, dest, true)
	if err != nil {
		return err
	}
	if omitted > 0 {
		return &refusedFile{path: source, why: fmt.Sprintf("it was copied without its %d FIFOs, sockets and devices, and not removed", omitted),
			hint: "remove it with: execwire rm -r " + shown(source)}
	}
	return m.client.RemoveAll(ctx, source)
}

// clear makes room for what a copy could not replace.
func (m *mover) clear(ctx context.Context, source, dest string, there *execwirev1.FileMetadata) error {
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
		return nil // written over
	}
	return m.client.Remove(ctx, dest)
}
