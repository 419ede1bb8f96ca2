package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/execwire/execwire/client"
)

type cpFlags struct {
	connect                                          connectFlags
	recursive, preserve, noClobber, update, checksum bool
	delete, quiet, noTargetDirectory, inPlace        bool
}

func newCpCommand(std streams) *cobra.Command {
	var flags cpFlags
	command := &cobra.Command{
		Use:   "cp [-r] [-p] [-n|--update|--checksum] [--delete] [--in-place] [-T] [-q] SOURCE... DEST",
		Short: "Copy files to, from or on a server",
		Long: `cp copies files between this machine and a server, or on the server. Paths of the
server begin with a colon, :PATH, others are of this machine. As with the cp of
every day, DEST is a directory to copy into if it is one, ends with a slash or there
are several sources; with -T it is never. The source DIRECTORY/. is what is in it.

A file is put in its place when it is whole and has arrived unchanged; a failure
leaves what was there. It gets the permission bits of its source. A link that a
source names is followed; with -r links are copied as links, but LINK/ and LINK/. are
the directory that they lead to. FIFOs, sockets and devices in a directory are left
out. A copy into what is copied leaves itself out, and that is a failure. A lost
connection is resumed for a minute and a quarter.

The same command goes on with a large file that it was interrupted in: with an
upload within ten minutes, with a download from a hidden file beside DEST that ends
with .execwire-part, as long as the file on the server is not changed. Of several
uploads that a signal interrupts, the server keeps the one of which most was sent,
and the others are aborted.

--update and --checksum leave out what is there already, and --delete removes what
the source does not have, so that

  execwire cp -r --update --delete src/. :/srv/src

makes a directory the same as another one. Both keep the times of files, as -p does.
On the server itself, copies are made by it: there are only -r and -T, a file is
written in place, and directories get the mode of new ones.

To servers of the exec-server protocol that are not of execwire (ws://, wss://) files
can only be copied with --in-place: then they are written where they are, and neither
files nor directories get the permission bits of their sources.

At a terminal a line on stderr shows how far it is; elsewhere, and with -q, nothing
is said but errors. The exit code is 1 when some files could not be copied, which
does not keep the others from being so, and 130 after a signal.

A PATH of the server that is not absolute begins at the path of the current
directory here, as the directory of run does.`,
		Example: `  execwire cp build.tar.gz :/tmp/
  execwire cp -r :/srv/logs .
  execwire cp -r --update --delete src/. :/srv/src
  execwire cp :/srv/app.conf :/srv/app.conf.bak`,
		Args: func(command *cobra.Command, arguments []string) error {
			if len(arguments) == 1 {
				return usageError(command, fmt.Errorf("name where to copy %q to", arguments[0]))
			}
			return pathArguments(2)(command, arguments)
		},
		RunE: func(command *cobra.Command, arguments []string) error {
			if err := exclusive(command, "no-clobber", "update", "checksum"); err != nil {
				return err
			}
			if flags.delete && !flags.recursive {
				return usageError(command, errors.New("--delete is for -r"))
			}
			plan, err := planCopies(arguments, flags)
			if err == nil && plan.fromServer && plan.toServer {
				err = without(command, "there are only -r and -T for copies on the server", "preserve", "no-clobber", "update", "checksum", "delete", "in-place")
			}
			if err == nil && flags.inPlace {
				err = without(command, "it is not for --in-place", "preserve", "no-clobber", "update", "checksum")
			}
			if err == nil && flags.inPlace && plan.fromServer {
				err = errors.New("--in-place is for copies to a server")
			}
			if err != nil {
				return usageError(command, err)
			}
			ctx, stop := interruptible(command.Context())
			defer stop()
			return interrupted(ctx, withServer(ctx, flags.connect, func(c *client.Client) error {
				copier := &copier{client: c, flags: flags, plan: plan, std: std, bar: newProgressBar(std, flags.quiet)}
				return copier.run(ctx)
			}))
		},
	}
	f := command.Flags()
	f.BoolVarP(&flags.recursive, "recursive", "r", false, "directories with all that is in them")
	f.BoolVarP(&flags.preserve, "preserve", "p", false, "keep the time of the last change, and set-ID and sticky bits")
	f.BoolVarP(&flags.noClobber, "no-clobber", "n", false, "leave files that are there as they are")
	f.BoolVar(&flags.update, "update", false, "leave files out that are there with the same size and time")
	f.BoolVar(&flags.checksum, "checksum", false, "leave files out that are there with the same content")
	f.BoolVar(&flags.delete, "delete", false, "remove what is in a directory of the destination and not in that of the source")
	f.BoolVar(&flags.inPlace, "in-place", false, "write files of the server where they are, without permission bits")
	f.BoolVarP(&flags.noTargetDirectory, "no-target-directory", "T", false, "DEST is what the copy is called, also if it is a directory")
	f.BoolVarP(&flags.quiet, "quiet", "q", false, "do not show how far it is")
	addServerFlags(command, &flags.connect)
	return command
}
