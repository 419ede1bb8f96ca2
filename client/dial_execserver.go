package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/execwire/execwire/client/execserver"
	"github.com/execwire/execwire/gateway/jsonrpc"
	"github.com/execwire/execwire/internal/wsconn"
)

// The schemes of servers of the exec-server protocol.
const (
	schemeWebsocket    = "ws"
	schemeWebsocketTLS = "wss"
)

// execServerScheme returns the scheme of a URL of a server of the exec-server
// protocol, and "" for others.
func execServerScheme(rawURL string) string {
	scheme, _, _ := strings.Cut(rawURL, ":")
	switch scheme = strings.ToLower(scheme); scheme {
	case schemeWebsocket, schemeWebsocketTLS, schemeLaunch:
		return scheme
	}
	return ""
}

// dialExecServer connects to a server of the exec-server protocol.
func (c *dialConfig) dialExecServer(ctx context.Context, rawURL string) (*execserver.Conn, error) {
	if execServerScheme(rawURL) == schemeLaunch {
		return c.dialLaunched(ctx, rawURL)
	}
	w, err := c.websocket(rawURL)
	if err != nil {
		return nil, err
	}
	conn, err := execserver.Dial(ctx, execserver.Options{Open: w.open, ClientName: c.name})
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, &DialError{URL: masked(w.url), Err: err}
	}
	return conn, nil
}

// websocket is a websocket that is opened again whenever it is lost.
type websocket struct {
	url     *url.URL
	options wsconn.DialOptions
	token   func() string // nil: none is shown
}

// websocket reads a URL, and the files of what is shown and trusted.
func (c *dialConfig) websocket(rawURL string) (*websocket, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		shown, _, _ := strings.Cut(rawURL, "?")
		return nil, &URLError{URL: shown, Problem: howToWrite}
	}
	if u.Hostname() == "" || u.User != nil || u.Fragment != "" {
		return nil, &URLError{URL: masked(u), Problem: "write it as " + u.Scheme + "://HOST:PORT, with a path if the server has one"}
	}
	trust, err := c.tls.config()
	if err != nil {
		return nil, err
	}
	w := &websocket{url: u, options: wsconn.DialOptions{TLS: trust, Options: wsconn.Options{
		PingInterval: wsconn.DefaultPingInterval, DeadAfter: wsconn.DefaultDeadAfter, Label: "exec-server websocket"}}}
	if c.tokenFile == "" {
		return w, nil
	}
	if u.Scheme == schemeWebsocket && !wsconn.IsLoopback(u.Hostname()) {
		return nil, &DialError{URL: masked(u), Err: errPlainText}
	}
	token, err := newTokenFile(c.tokenFile)
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
		return nil, w.explain(err) // calls repeat it while the connection is lost
	}
	return conn, nil
}

// explain returns why the server could not be reached, without what is secret in
// its URL.
func (w *websocket) explain(err error) error {
	if refused, ok := errors.AsType[*wsconn.RefusedError](err); ok {
		return w.explainRefusal(refused)
	}
	if inner, ok := errors.AsType[*url.Error](err); ok { // repeats the URL
		err = inner.Err
	}
	switch {
	case errors.Is(err, http.ErrSchemeMismatch):
		return errors.New("something listens there, but without TLS: it may be ws://")
	case strings.Contains(err.Error(), "malformed HTTP"): // net/http has no type for it
		return errors.New("something listens there, but it speaks no HTTP: it may be grpc://")
	}
	return explainTLS(err, schemeWebsocket)
}

// maxRefusalText is how much of what a server says is repeated, in bytes.
const maxRefusalText = 300

func (w *websocket) explainRefusal(refused *wsconn.RefusedError) error {
	said := strings.ToValidUTF8(strings.TrimSpace(refused.Text[:min(len(refused.Text), maxRefusalText)]), "")
	if said != "" {
		said = ": " + said
	}
	answer := fmt.Sprintf("the server answered %d %s%s", refused.Status, http.StatusText(refused.Status), said)
	switch {
	case refused.Status == http.StatusUnauthorized && w.token == nil:
		return errors.New(answer + ": it wants a token")
	case refused.Status == http.StatusUnauthorized:
		return errors.New(answer + ": the token is not one that it knows")
	case refused.Status == http.StatusNotFound:
		return errors.New(answer + ": there is no exec-server at this path")
	}
	return errors.New(answer)
}
