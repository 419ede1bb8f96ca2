package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/execwire/execwire/client/execserver"
	"github.com/execwire/execwire/internal/jsonrpc"
	"github.com/execwire/execwire/internal/wsconn"
)

// URL schemes of servers of the exec-server protocol.
const (
	schemeWebsocket    = "ws"
	schemeWebsocketTLS = "wss"
)

// execServerScheme returns the scheme of an exec-server URL, and "" for others.
func execServerScheme(rawURL string) string {
	scheme, _, _ := strings.Cut(rawURL, ":")
	switch scheme = strings.ToLower(scheme); scheme {
	case schemeWebsocket, schemeWebsocketTLS, schemeLaunch:
		return scheme
	}
	return ""
}

// execServer is how to reach a server of the exec-server protocol.
type execServer struct {
	shown string // the URL for messages
	once  bool   // whether its session ends with the transport
	open  func(context.Context) (jsonrpc.Transport, error)
}

func (c *dialConfig) execServer(rawURL string) (execServer, error) {
	switch execServerScheme(rawURL) {
	case schemeLaunch:
		return c.launched(rawURL)
	case "":
		return c.relayedExecServer(rawURL)
	}
	w, err := c.websocket(rawURL)
	if err != nil {
		return execServer{}, err
	}
	return execServer{shown: redactURL(w.url), open: w.open}, nil
}

// dialExecServer connects to a server of the exec-server protocol.
func (c *dialConfig) dialExecServer(ctx context.Context, rawURL string) (*Client, error) {
	server, err := c.execServer(rawURL)
	if err != nil {
		return nil, err
	}
	conn, err := execserver.Dial(ctx, execserver.Options{Open: server.open, Once: server.once, ClientName: c.name})
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, &DialError{URL: server.shown, Err: err}
	}
	return NewOwning(conn, conn), nil
}

// websocket opens a websocket again whenever it is lost.
type websocket struct {
	url     *url.URL
	options wsconn.DialOptions
	token   func() string // nil: no token
}

// websocket parses a URL and reads the files of its credentials and CAs.
func (c *dialConfig) websocket(rawURL string) (*websocket, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		shown, _, _ := strings.Cut(rawURL, "?")
		return nil, &URLError{URL: shown, Problem: urlSyntax}
	}
	if u.Hostname() == "" || u.User != nil || u.Fragment != "" {
		return nil, &URLError{URL: redactURL(u), Problem: "write it as " + u.Scheme + "://HOST:PORT, with a path if the server has one"}
	}
	trust, err := c.tls.config()
	if err != nil {
		return nil, err
	}
	w := &websocket{url: u, options: wsconn.DialOptions{TLS: trust, Options: wsconn.Options{
		PingInterval: wsconn.DefaultPingInterval, DeadAfter: wsconn.DefaultDeadAfter, Label: "exec-server websocket"}}}
	if !c.hasToken() {
		return w, nil
	}
	if u.Scheme == schemeWebsocket && !wsconn.IsLoopback(u.Hostname()) {
		return nil, &DialError{URL: redactURL(u), Err: errPlainText}
	}
	token, err := c.bearer()
	if err != nil {
		return nil, err
	}
	w.token = token.token
	return w, nil
}

// open opens the websocket.
func (w *websocket) open(ctx context.Context) (jsonrpc.Transport, error) {
	options := w.options
	if w.token != nil {
		options.Header = http.Header{"Authorization": {"Bearer " + w.token()}}
	}
	conn, err := wsconn.Dial(ctx, w.url.String(), options)
	if err != nil {
		return nil, w.explain(err) // the connection repeats it
	}
	return conn, nil
}

// explain returns why the server could not be reached, without secrets of the URL.
func (w *websocket) explain(err error) error {
	if refused, ok := errors.AsType[*wsconn.RefusedError](err); ok {
		return w.explainRefusal(refused)
	}
	if inner, ok := errors.AsType[*url.Error](err); ok { // contains the URL
		err = inner.Err
	}
	switch {
	case errors.Is(err, http.ErrSchemeMismatch):
		return errors.New("the server does not use TLS: try ws://")
	case strings.Contains(err.Error(), "malformed HTTP"): // net/http has no type for it
		return errors.New("the server does not speak HTTP: try tcp://")
	}
	return explainTLS(err, schemeWebsocket)
}

// maxRefusalText is how many bytes of the server's answer an error quotes.
const maxRefusalText = 300

func (w *websocket) explainRefusal(refused *wsconn.RefusedError) error {
	said := strings.ToValidUTF8(strings.TrimSpace(refused.Text[:min(len(refused.Text), maxRefusalText)]), "")
	if said != "" {
		said = ": " + said
	}
	answer := fmt.Sprintf("the server answered %d %s%s", refused.Status, http.StatusText(refused.Status), said)
	switch {
	case refused.Status == http.StatusUnauthorized && w.token == nil:
		return errors.New(answer + ": it requires a token")
	case refused.Status == http.StatusUnauthorized:
		return errors.New(answer + ": it rejects the token")
	case refused.Status == http.StatusNotFound:
		return errors.New(answer + ": there is no exec-server at this path")
	}
	return errors.New(answer)
}

// schemeLaunch is the URL scheme of servers that the client launches.
const schemeLaunch = "stdio"

// LaunchCommand is a command that serves the exec-server protocol on its stdio.
type LaunchCommand execserver.LaunchCommand

// WithLaunchCommand sets the command that "stdio:" starts, instead of a command in the
// URL. It has no effect on other URLs.
func WithLaunchCommand(command LaunchCommand) Option {
	return func(c *dialConfig) { c.launch = &command }
}

// launched returns a server that is launched when it is opened.
func (c *dialConfig) launched(rawURL string) (execServer, error) {
	command, err := c.launchCommand(rawURL)
	if err != nil {
		return execServer{}, err
	}
	// Arguments may be secret.
	return execServer{shown: schemeLaunch + ":" + command.Argv[0], once: true,
		open: func(ctx context.Context) (jsonrpc.Transport, error) {
			return execserver.Launch(ctx, execserver.LaunchCommand(command))
		}}, nil
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

// splitCommand splits a command line at its spaces. Quoted text is one word, and a
// backslash outside of single quotes escapes the next character. Nothing else is
// special: there is no shell.
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
