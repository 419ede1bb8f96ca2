package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/cmd/execwire/internal/complete"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

type putFlags struct {
	mode, ifMatch string
	client.UploadOptions
}

func newPutCommand(std streams) *cobra.Command {
	var flags putFlags
	var options client.UploadOptions
	command := &cobra.Command{
		Use:   "put [-m MODE] [-n|--if-match SHA256] [--in-place] [--sync] PATH",
		Short: "Write stdin to a file of a server",
		Long: `put writes stdin, up to its end, to a file. The file is renamed into place when it is
complete and its digest is right; a failure leaves the old file. A lost connection is
resumed for 75 seconds.

With --if-match the file is replaced only if its content has this SHA-256, as
sha256sum prints it, so that changes of others are not overwritten. With -n the file
is written only if it does not exist. With --in-place an existing file is overwritten
and keeps its owner and hard links; a failure then leaves partial content.

The exit code is 1 if the condition of --if-match or -n is not met, 130 after a
signal, and 125 for other failures.` + pathHelp,
		Example: `  execwire put -m 600 /srv/app.conf < app.conf
  make 2>&1 | execwire put /srv/build.log
  execwire put --if-match $(execwire cat a | sha256sum | cut -c-64) a < b`,
		Args: cobra.MatchAll(paths(1, 1), exclusive("no-clobber", "if-match"),
			valid(func(command *cobra.Command, _ []string) (err error) {
				options, err = putOptions(flags)
				if err == nil && flags.InPlace {
					err = rejectFlags(command, "it is not for --in-place", "mode", "no-clobber", "if-match", "sync")
				}
				return err
			})),
	}
	f := command.Flags()
	f.StringVarP(&flags.mode, "mode", "m", "", "the `mode` of the file, in octal (default that of the existing file, else the server's)")
	f.BoolVarP(&flags.IfMissing, "no-clobber", "n", false, "only if the file does not exist")
	f.StringVar(&flags.ifMatch, "if-match", "", "only if the content of the file has this `SHA-256`")
	f.BoolVar(&flags.InPlace, "in-place", false, "write to the existing file")
	f.BoolVar(&flags.Sync, "sync", false, "sync to disk before the command ends")
	onServer(command, serverUse{untilSignal: true, completes: complete.Paths, paths: everyPath}, func(ctx context.Context, c *client.Client, arguments []string) error {
		_, err := c.Upload(ctx, remotePath(arguments[0]), std.in, options)
		return explainPut(err)
	})
	return command
}

func putOptions(flags putFlags) (options client.UploadOptions, err error) {
	options = flags.UploadOptions
	if options.Permissions, err = parseMode(flags.mode); err != nil {
		return options, err
	}
	if flags.ifMatch == "" {
		return options, nil
	}
	if options.IfMatchSHA256, err = hex.DecodeString(flags.ifMatch); err != nil || len(options.IfMatchSHA256) != 32 {
		return options, fmt.Errorf("--if-match is %q: it has to be 64 hexadecimal digits, as sha256sum prints them", flags.ifMatch)
	}
	return options, nil
}

// parseMode parses octal mode bits, as chmod does; nil without any.
func parseMode(text string) (*uint32, error) {
	if text == "" {
		return nil, nil
	}
	mode, err := strconv.ParseUint(text, 8, 32)
	if err != nil || mode > 0o7777 {
		return nil, fmt.Errorf("--mode is %q: it has to be octal, from 0 to 7777", text)
	}
	return new(uint32(mode)), nil
}

// explainPut adds hints to errors of put.
func explainPut(err error) error {
	if err == nil {
		return nil
	}
	explained := explain(err, reasonHints{
		execwirev1.ErrorReason_ERROR_REASON_PATH_NOT_FOUND: "make the directory with: execwire mkdir -p",
	})
	switch client.Reason(err) {
	case execwirev1.ErrorReason_ERROR_REASON_CONTENT_NOT_MATCHED, execwirev1.ErrorReason_ERROR_REASON_PATH_ALREADY_EXISTS:
		explained.code = codeSomeFailed
	}
	if read, ok := errors.AsType[*client.ReadError](err); ok {
		explained.err = fmt.Errorf("failed to read stdin: %w", read.Err)
	}
	return explained
}

func newTouchCommand(std streams) *cobra.Command {
	command := &cobra.Command{
		Use:   "touch [-c] PATH...",
		Short: "Create files of a server, or set their times to now",
		Long: `touch creates empty files, and sets the modification and access time of files that
exist to the current time of the server.

The exit code is 1 if this failed for one of them.` + globHelp + pathHelp,
		Example: `  execwire touch /srv/build/.done
  execwire touch -c /srv/www/index.html`,
		Args: paths(1, unlimited),
	}
	noCreate := command.Flags().BoolP("no-create", "c", false, "do not create files")
	onServer(command, serverUse{completes: complete.Paths, paths: everyPath, expands: true}, func(ctx context.Context, c *client.Client, arguments []string) error {
		return eachPath(std, arguments, nil, func(name string) error {
			err := c.SetMetadata(ctx, name, client.MetadataChanges{Touch: true})
			if !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			if *noCreate {
				return nil
			}
			_, err = c.Upload(ctx, name, strings.NewReader(""), client.UploadOptions{IfMissing: true})
			if errors.Is(err, fs.ErrExist) { // it was created meanwhile
				return nil
			}
			return err
		})
	})
	return command
}
