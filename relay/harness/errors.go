package harness

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/execwire/execwire/internal/wsconn"
	"github.com/execwire/execwire/relay"
)

// ErrPlainExecutor means that the executor has not acknowledged anything: it is
// one of the reference implementation, which does not, or it is not running.
var ErrPlainExecutor = errors.New("the executor does not answer, or supports only JSON-RPC through the relay: it must be an execwire server")

// ErrStreamLimit means that a stream limit is reached. An open connection may
// fail with it, too, when its stream is evicted for a client that has fewer.
var ErrStreamLimit = errors.New("a stream limit of the executor or the hub is reached: try again later, or raise relay_streams of the executor, or streams_per_connection, streams_per_principal or streams_per_executor of the hub (stream_limit)")

// translateError maps an error of a stream to one of this package.
func translateError(err error) error {
	if reset, ok := errors.AsType[*relay.ResetError](err); ok && reset.Remote && reset.Reason == relay.ReasonStreamLimit {
		return ErrStreamLimit
	}
	return err
}

// OptionsError means that one of [Options] is invalid.
type OptionsError struct {
	Name    string // the field
	Problem string // follows the name
	Fix     string // what to do about it
}

func (e *OptionsError) Error() string { return e.Name + " " + e.Problem + ": " + e.Fix }

// RefusedError means that the rendezvous responded with an error.
type RefusedError struct {
	Host   string // of the rendezvous
	Status int    // HTTP status
	Code   string // error code; may be empty
	Text   string // error message; may be empty
}

// NewRefusedError parses the response body, which may be JSON of the form
// {"error":{"code":…,"message":…}} or text.
func NewRefusedError(host string, status int, body string) *RefusedError {
	e := &RefusedError{Host: host, Status: status, Text: strings.TrimSpace(body)}
	var answer struct {
		Error struct{ Code, Message string }
	}
	if json.Unmarshal([]byte(body), &answer) == nil && answer.Error.Message != "" {
		e.Code, e.Text = answer.Error.Code, answer.Error.Message
	}
	e.Text = fmt.Sprintf("%.*s", maxText, e.Text)
	return e
}

func (e *RefusedError) Error() string {
	text := fmt.Sprintf("%s refused the connection (%d %s)", e.Host, e.Status, http.StatusText(e.Status))
	if e.Text != "" {
		text += ": " + e.Text
	}
	return text
}

// maxText is how many characters of a response's text an error includes.
const maxText = 300

// dialError converts an error of opening a websocket, and removes the secrets in
// its URL.
func dialError(rawURL string, err error) error {
	host := "rendezvous"
	if u, parseErr := url.Parse(rawURL); parseErr == nil {
		host = u.Host
	}
	if refused, ok := errors.AsType[*wsconn.RefusedError](err); ok {
		return NewRefusedError(host, refused.Status, refused.Text)
	}
	if inner, ok := errors.AsType[*url.Error](err); ok { // repeats the URL
		err = inner.Err
	}
	return fmt.Errorf("failed to connect to the rendezvous %s: %w", host, err)
}
