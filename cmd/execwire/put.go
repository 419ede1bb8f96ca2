package main

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

type putFlags struct {
	connect                  connectFlags
	mode, ifMatch            string
	inPlace, noClobber, sync bool
}

func newPutCommand(std streams) *cobra.Command {
	var flags putFlags
	command := &cobra.Command{
		Use:   "put [-m MODE] [-n|--if-match SHA256] [--in-place] [--sync] PATH",
		Short: "Write stdin to a file of a server",
		Long: `put gives a file the content of stdin, up to its end. It is put in its place when it
is whole and has arrived unchanged; a failure leaves what was there. A lost
connection is resumed for a minute and a quarter.

With --if-match the file is replaced only if its content has this SHA-256, as
sha256sum prints it, so that nobody else's change is lost; with -n only if there is
none. With --in-place the file that is there is written to, and keeps its owner and
its other names; a failure then leaves a part.

The exit code is 1 when the condition does not hold, 130 after a signal, and 125 for
other failures.` + pathHelp,
		Example: `  execwire put -m 600 /srv/app.conf < app.conf
  make 2>&1 | execwire put /srv/build.log
  execwire put --if-match $(execwire cat a | sha256sum | cut -c-64) a < b`,
		Args: func(command *cobra.Command, arguments []string) error {
			if len(arguments) > 1 {
				return usageError(command, fmt.Errorf("unexpected argument %q", arguments[1]))
			}
			return pathArguments(1)(command, arguments)
		},
		RunE: func(command *cobra.Command, arguments []string) error {
			if err := exclusive(command, "no-clobber", "if-match"); err != nil {
				return err
			}
			options, err := putOptions(flags)
			if err == nil && flags.inPlace {
				err = without(command, "it is not for --in-place", "mode", "no-clobber", "if-match", "sync")
			}
			if err != nil {
				return usageError(command, err)
			}
			name, err := remotePath(arguments[0])
			if err != nil {
				return err
			}
			ctx, stop := interruptible(command.Context())
			defer stop()
			return interrupted(ctx, withServer(ctx, flags.connect, func(c *client.Client) error {
				_, err := c.Upload(ctx, name, std.in, options)
				return explainPut(err)
			}))
		},
	}
	f := command.Flags()
	f.StringVarP(&flags.mode, "mode", "m", "", "the `mode` of the file, in octal (default that of the file that is there, else the server's)")
	f.BoolVarP(&flags.noClobber, "no-clobber", "n", false, "only if nothing is there")
	f.StringVar(&flags.ifMatch, "if-match", "", "only if the file has the content with this `SHA-256`")
	f.BoolVar(&flags.inPlace, "in-place", false, "write to the file that is there")
	f.BoolVar(&flags.sync, "sync", false, "have it on the disk before this ends")
	addServerFlags(command, &flags.connect)
	return command
}

func putOptions(flags putFlags) (client.UploadOptions, error) {
	options := client.UploadOptions{InPlace: flags.inPlace, IfMissing: flags.noClobber, Sync: flags.sync}
	if flags.mode != "" {
		mode, err := parseMode(flags.mode)
		if err != nil {
			return options, err
		}
		options.Permissions = &mode
	}
	if flags.ifMatch != "" {
		digest, err := hex.DecodeString(flags.ifMatch)
		if err != nil || len(digest) != 32 {
			return options, fmt.Errorf("--if-match is %q: it has to be 64 hexadecimal digits, as sha256sum prints them", flags.ifMatch)
		}
		options.IfMatchSHA256 = digest
	}
	return options, nil
}

// parseMode reads mode bits as chmod does in octal.
func parseMode(text string) (uint32, error) {
	mode, err := strconv.ParseUint(text, 8, 32)
	if err != nil || mode > 0o7777 {
		return 0, fmt.Errorf("--mode is %q: it has to be octal, from 0 to 7777", text)
	}
	return uint32(mode), nil
}

// explainPut says what to do about what put fails with.
func explainPut(err error) error {
	if err == nil {
		return nil
	}
	explained := explainFile(err, map[execwirev1.ErrorReason]string{
		execwirev1.ErrorReason_ERROR_REASON_PATH_NOT_FOUND: "make the directory with: execwire mkdir -p",
	})
	switch client.Reason(err) {
	case execwirev1.ErrorReason_ERROR_REASON_CONTENT_NOT_MATCHED, execwirev1.ErrorReason_ERROR_REASON_PATH_ALREADY_EXISTS:
		explained.code = codeSomeFailed
	}
	var read *client.ReadError
	if errors.As(err, &read) {
		explained.err = fmt.Errorf("failed to read stdin: %w", read.Err)
	}
	return explained
}
