package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/cmd/execwire/internal/complete"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/gitignore"
)

type cpFlags struct {
	client.TransferOptions
	quiet, noTargetDirectory bool
	archive, recursiveToo    bool // -a and -R
}

func newCpCommand(std streams) *cobra.Command {
	var flags cpFlags
	var base string
	command := &cobra.Command{
		Use:   "cp [-r] [-p] [-a] [-n|--update|--checksum] [--delete] [--ignore PATTERN]... [--in-place] [-T] [-q] SOURCE... DEST",
		Short: "Copy files to, from or on a server",
		Long: `cp copies files between this machine and a server, or on the server. Paths of the
server begin with a colon, :PATH. As with cp(1), DEST is a directory to copy into if
it is a directory, ends with a slash, or if there are several sources; with -T it
never is. The source DIRECTORY/. is the content of the directory.

With the DEST - a file of the server is written to stdout, and with the SOURCE - stdin
is written to the file DEST; write ./- for a local file of this name. In a SOURCE on
the server, *, ?, [a-z] and [!a-z] stand for names there, as in ':/tmp/host*', unless a
file has this very name.

A file is renamed into place when it is complete and its digest is right; a failure
leaves the old file. It gets the permission bits of its source. A link that is named
as a source is followed. With -r links are copied as links, but LINK/ and LINK/. are
the directory that they lead to. FIFOs, sockets and devices in a directory are
skipped. A directory is not copied into itself; that counts as a failure. A lost
connection is resumed for 75 seconds.

The same command continues an interrupted large file: an upload within ten minutes,
a download from a hidden file beside DEST that ends with .execwire-part, if the file
on the server has not changed. If a signal interrupts several uploads, the server
keeps the one of which most was sent; the others are aborted.

--update and --checksum skip files that exist already. --delete removes what the
source does not have. This makes one directory equal to another:

  execwire cp -r --update --delete src/. :/srv/src

--ignore skips what matches a pattern of .gitignore in the directories of -r, and
--delete leaves it there; patterns with ! are refused.

--update and --checksum keep the times of files, as -p does. Copies from the server
to the server are made by the server: only -r and -T are supported, a file is written
in place, and directories get the mode of new ones. For more, run the cp of the server:
execwire run cp -a SOURCE DEST.

Over the exec-server protocol (ws://, wss://, stdio:) files can only be copied with
--in-place. Files and directories then do not get the permission bits of their
sources.

At a terminal cp shows its progress on stderr; elsewhere, and with -q, it prints only
errors. The exit code is 1 if some files could not be copied (the others are), and 130
after a signal.

A relative PATH on the server begins at the home directory of the server's user.`,
		Example: `  execwire cp build.tar.gz :/tmp/
  execwire cp -r :/srv/logs .
  execwire cp -r --update --delete src/. :/srv/src
  execwire cp -a ':/srv/*.conf' backup/
  execwire cp :/srv/data.json - | jq .
  execwire cp :/srv/app.conf :/srv/app.conf.bak`,
		Args: cobra.MatchAll(sourcesAndDest("copy"), exclusive("no-clobber", "update", "checksum"),
			valid(func(command *cobra.Command, arguments []string) error { return checkCopies(command, arguments, &flags) })),
	}
	f := command.Flags()
	f.BoolVarP(&flags.Recursive, "recursive", "r", false, "copy directories with their content")
	f.BoolVarP(&flags.Preserve, "preserve", "p", false, "keep modification times, and set-ID and sticky bits")
	addHidden(f, &flags.recursiveToo, "copy-recursive", "R", "the same as -r")
	f.BoolVarP(&flags.archive, "archive", "a", false, "the same as -r -p")
	f.BoolVarP(&flags.NoReplace, "no-clobber", "n", false, "do not replace existing files")
	f.BoolVar(&flags.Update, "update", false, "skip files that exist with the same size and time")
	f.BoolVar(&flags.Checksum, "checksum", false, "skip files that exist with the same content")
	f.BoolVar(&flags.Delete, "delete", false, "remove what a directory of the destination has and that of the source has not")
	f.StringArrayVar(&flags.Ignore, "ignore", nil, "skip what matches this `pattern` of .gitignore; may be repeated")
	f.BoolVar(&flags.InPlace, "in-place", false, "write files of the server in place, without permission bits")
	f.BoolVarP(&flags.noTargetDirectory, "no-target-directory", "T", false, "DEST is the name of the copy, even if it is a directory")
	f.BoolVarP(&flags.quiet, "quiet", "q", false, "do not show progress")
	onServer(command, serverUse{untilSignal: true, completes: complete.CopyPaths, paths: colonPaths, base: &base}, func(ctx context.Context, c *client.Client, arguments []string) error {
		plan, err := planCopies(arguments, flags)
		if err != nil {
			return usageError(command, err)
		}
		if err := plan.expandSources(ctx, c, base, flags); err != nil {
			return usageError(command, err)
		}
		if plan.standard {
			return copyStandard(ctx, c, flags, plan, std)
		}
		copier := &copier{client: c, flags: flags, plan: plan, std: std, bar: newProgressBar(std, flags.quiet)}
		return copier.run(ctx)
	})
	return command
}

// checkCopies checks the arguments, and rejects flags that are not for these copies.
func checkCopies(command *cobra.Command, arguments []string, flags *cpFlags) error {
	flags.Recursive = flags.Recursive || flags.archive || flags.recursiveToo
	flags.Preserve = flags.Preserve || flags.archive
	if flags.Delete && !flags.Recursive {
		return errors.New("--delete is for -r")
	}
	if flags.Ignore != nil && !flags.Recursive {
		return errors.New("--ignore is for -r")
	}
	if _, err := gitignore.ParseAll(flags.Ignore); err != nil {
		return fmt.Errorf("--ignore: %w", err)
	}
	plan, err := planCopies(arguments, *flags)
	if err == nil && plan.standard {
		err = rejectFlags(command, "it is not for a copy from stdin or to stdout", "recursive", "archive", "copy-recursive", "preserve", "update", "checksum", "delete", "ignore", "no-target-directory")
	}
	if err == nil && plan.fromServer && plan.toServer {
		err = rejectFlags(command, "there are only -r and -T for copies on the server; run cp there instead: execwire run cp -a SOURCE DEST", "archive", "preserve", "no-clobber", "update", "checksum", "delete", "ignore", "in-place")
	}
	if err == nil && flags.InPlace {
		err = rejectFlags(command, "it is not for --in-place", "archive", "preserve", "no-clobber", "update", "checksum")
	}
	if err == nil && flags.InPlace && plan.fromServer {
		err = errors.New("--in-place is for copies to a server")
	}
	return err
}

// copyStandard copies a file of the server to stdout, or stdin to one.
func copyStandard(ctx context.Context, c *client.Client, flags cpFlags, plan copyPlan, std streams) error {
	if plan.toServer {
		options := client.UploadOptions{IfMissing: flags.NoReplace, InPlace: flags.InPlace}
		_, err := c.Upload(ctx, plan.dest, std.in, options)
		if flags.NoReplace && errors.Is(err, fs.ErrExist) {
			return nil
		}
		return explainPut(err)
	}
	_, err := c.Download(ctx, plan.sources[0].path, std.out, client.DownloadOptions{})
	if err != nil {
		return explain(err, reasonHints{execwirev1.ErrorReason_ERROR_REASON_IS_A_DIRECTORY: "copy it to a directory with -r"})
	}
	return nil
}
