package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/daemon"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// defaultServer is where execwire serve listens when it is not told where, and
// where commands look that are about processes of a server.
const defaultServer = daemon.DefaultListenURL

// remoteHelp ends the help of every such command.
const remoteHelp = "\n\nThe server is that of --server, or of --hub and --executor, else of " + serverVariable + ",\nelse " + defaultServer + "."

// remoteFlags say which server and which session a command is about.
type remoteFlags struct {
	connect connectFlags
	session string
}

// addRemoteFlags adds the flags of a command that is about processes of a
// server.
func addRemoteFlags(command *cobra.Command, flags *remoteFlags) {
	addServerFlags(command, &flags.connect)
	needsLasting(command, &flags.connect)
	command.Flags().StringVar(&flags.session, "session", "", "the `ID` of the session (default your default session)")
}

// addServerFlags adds the flags of a command that is about a server.
func addServerFlags(command *cobra.Command, flags *connectFlags) {
	addConnectFlags(command, flags)
	server := command.Flags().Lookup("server")
	server.Usage = strings.Replace(server.Usage, "else none", "else "+defaultServer, 1)
	command.Long += remoteHelp
}

// withServer does something with a client of the server, and explains why it
// could not be done.
func withServer(ctx context.Context, flags connectFlags, do func(*client.Client) error) error {
	if flags.server == "" {
		flags.server = defaultServer
	}
	c, closeClient, err := connect(ctx, flags)
	if err != nil {
		return explainDial(err)
	}
	defer closeClient()
	return explainCall(do(c))
}

// explainCall says what to do about an error of a server. Errors that say it
// already stay as they are.
func explainCall(err error) error {
	var exit *exitError
	if err == nil || errors.As(err, &exit) {
		return err
	}
	err = client.FromRPC(err)
	explained := &exitError{code: codeFailed, err: err}
	switch client.Reason(err) {
	case execwirev1.ErrorReason_ERROR_REASON_PROCESS_NOT_FOUND:
		explained.hint = "list what is there with: execwire ps -a"
	case execwirev1.ErrorReason_ERROR_REASON_SESSION_NOT_FOUND:
		explained.hint = "list what is there with: execwire sessions"
	}
	return explained
}

// idArguments wants ids, at least one and at most most; 0 is any number.
func idArguments(what string, most int) cobra.PositionalArgs {
	return func(command *cobra.Command, arguments []string) error {
		if len(arguments) == 0 || arguments[0] == "" {
			return usageError(command, fmt.Errorf("name a %s: give its id", what))
		}
		if most > 0 && len(arguments) > most {
			return usageError(command, fmt.Errorf("unexpected argument %q", arguments[most]))
		}
		return nil
	}
}

// exclusive refuses more than one of some flags.
func exclusive(command *cobra.Command, names ...string) error {
	var given []string
	for _, name := range names {
		if command.Flags().Changed(name) {
			given = append(given, "--"+name)
		}
	}
	if len(given) > 1 {
		return usageError(command, fmt.Errorf("%s exclude each other", strings.Join(given, " and ")))
	}
	return nil
}

// printJSON prints one object on a line of its own.
func printJSON(w io.Writer, object any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(object)
}

// shown is text as it can be shown at a terminal, whatever somebody put into
// it.
func shown(text string) string {
	if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(text)
	}
	return text
}

// printTable prints a table: in columns at a terminal, cut to its width, and
// with a tab between the fields elsewhere.
func printTable(out *os.File, header []string, rows [][]string) error {
	rows = append([][]string{header}, rows...)
	if !term.IsTerminal(int(out.Fd())) {
		for _, row := range rows {
			if _, err := fmt.Fprintln(out, strings.Join(row, "\t")); err != nil {
				return err
			}
		}
		return nil
	}
	width, _, _ := term.GetSize(int(out.Fd()))
	for _, line := range alignColumns(rows, width) {
		if _, err := fmt.Fprintln(out, line); err != nil {
			return err
		}
	}
	return nil
}

// alignColumns makes lines of rows, at most width characters long; 0 is any
// length.
func alignColumns(rows [][]string, width int) []string {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, field := range row {
			widths[i] = max(widths[i], len([]rune(field)))
		}
	}
	lines := make([]string, len(rows))
	for i, row := range rows {
		var line strings.Builder
		for column, field := range row {
			if column == len(row)-1 {
				line.WriteString(field)
				break
			}
			fmt.Fprintf(&line, "%-*s  ", widths[column], field)
		}
		lines[i] = line.String()
		if characters := []rune(lines[i]); width > 0 && len(characters) > width {
			lines[i] = string(characters[:width-1]) + "…"
		}
	}
	return lines
}
