package client

import (
	"context"
	"io"
	"strings"

	"github.com/execwire/execwire/client/execserver"
	"github.com/execwire/execwire/gateway/jsonrpc"
)

// schemeLaunch is that of servers that are started for the client.
const schemeLaunch = "stdio"

// LaunchCommand is a command that serves the exec-server protocol on its standard
// streams.
type LaunchCommand struct {
	// Argv is the command and its arguments, exactly. A name without a slash is
	// looked up in PATH. Required.
	Argv []string
	// Dir is where it starts; empty is the directory of this program.
	Dir string
	// Env is its whole environment, as NAME=value; nil is that of this program.
	Env []string
	// Stderr gets what it says on standard error, from another goroutine, until the
	// client is closed. nil drops it, but for its end in the error when the command
	// has ended.
	Stderr io.Writer
}

// WithLaunchCommand says what "stdio:" starts, in place of a command in the URL. Other
// URLs take no notice of it.
func WithLaunchCommand(command LaunchCommand) Option {
	return func(c *dialConfig) { c.launch = &command }
}

// dialLaunched starts a server and connects to it.
func (c *dialConfig) dialLaunched(ctx context.Context, rawURL string) (*execserver.Conn, error) {
	command, err := c.launchCommand(rawURL)
	if err != nil {
		return nil, err
	}
	conn, err := execserver.Dial(ctx, execserver.Options{Once: true, ClientName: c.name,
		Open: func(ctx context.Context) (jsonrpc.Transport, error) {
			return execserver.Launch(ctx, execserver.LaunchOptions{
				Argv: command.Argv, Dir: command.Dir, Env: command.Env, Stderr: command.Stderr})
		}})
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, &DialError{URL: schemeLaunch + ":" + command.Argv[0], Err: err} // arguments may be secret
	}
	return conn, nil
}

func (c *dialConfig) launchCommand(rawURL string) (LaunchCommand, error) {
	_, text, _ := strings.Cut(rawURL, ":")
	var command LaunchCommand
	if c.launch != nil {
		command = *c.launch
	}
	if strings.Trim(text, "/ ") == "" {
		if len(command.Argv) == 0 {
			return command, &URLError{URL: rawURL, Problem: "name the command to start: stdio:COMMAND, or use WithLaunchCommand"}
		}
		return command, nil
	}
	if len(command.Argv) > 0 {
		return command, &URLError{URL: schemeLaunch + ":", Problem: "a command is in the URL and in WithLaunchCommand: leave one of them out"}
	}
	argv, problem := splitCommand(text)
	if problem != "" {
		return command, &URLError{URL: schemeLaunch + ":", Problem: problem}
	}
	command.Argv = argv
	return command, nil
}

// splitCommand splits a command line at its spaces. What is in quotation marks is one
// word, and a backslash outside of single ones takes away what the character after
// it means. Nothing else means anything: there is no shell.
func splitCommand(text string) (words []string, problem string) {
	var word []byte
	inWord, quote := false, byte(0)
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '\\' && quote != '\'':
			if i++; i == len(text) {
				return nil, "the command ends with a backslash: write two for one"
			}
			word, inWord = append(word, text[i]), true
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '\'' || c == '"'):
			quote, inWord = c, true
		case quote == 0 && (c == ' ' || c == '\t'):
			if inWord {
				words = append(words, string(word))
			}
			word, inWord = nil, false
		default:
			word, inWord = append(word, c), true
		}
	}
	if quote != 0 {
		return nil, "a quotation mark is not closed in the command"
	}
	if inWord {
		words = append(words, string(word))
	}
	if len(words) == 0 || words[0] == "" {
		return nil, "name the command to start: stdio:COMMAND"
	}
	return words, ""
}
