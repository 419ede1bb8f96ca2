package harness

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/execwire/execwire/internal/wsconn"
	"github.com/execwire/execwire/relay"
)

// ErrPlainExecutor is an executor that has never shown that it acknowledges what
// it gets, as those of the reference do not, or one that is not there.
var ErrPlainExecutor = errors.New("the executor does not speak gRPC through the relay, only JSON-RPC, or does not answer: it has to be a server of execwire")

// ErrStreamLimit is a connection that there is no place for now: of one that was
// there its place may be taken, too, for a client that has fewer.
var ErrStreamLimit = errors.New("the executor has as many connections through the hub as it takes: try again when there are fewer, or raise relay_streams of the executor, or streams_per_connection, streams_per_principal or streams_per_executor of the hub (stream_limit)")

// meaning returns err of a stream in the words of this package.
func meaning(err error) error {
	if reset, ok := errors.AsType[*relay.ResetError](err); ok && reset.Remote && reset.Reason == relay.ReasonStreamLimit {
		return ErrStreamLimit
	}
	return err
}

// OptionsError is one of [Options] that cannot be used.
type OptionsError struct {
	Name    string // the field
	Problem string // what is wrong, to be read after the name
	Fix     string // what to do about it
}

func (e *OptionsError) Error() string { return e.Name + " " + e.Problem + ": " + e.Fix }

// RefusedError is a rendezvous that answered, and did not do what it was asked
// for.
type RefusedError struct {
	Host   string // of the rendezvous
	Status int    // of HTTP
	Code   string // what the rendezvous says it is, for programs; may be empty
	Text   string // what it says about it; may be empty
}

// NewRefusedError makes the error of an answer, whose body may be JSON in the
// form {"error":{"code":…,"message":…}} or text.
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

// TimeoutError is a rendezvous that did not answer in time.
type TimeoutError struct {
	After time.Duration // how long was waited
}

func (e *TimeoutError) Error() string {
	return fmt.Sprintf("the rendezvous did not answer within %v", e.After)
}

// UnreachableError says why there was no answer of a rendezvous.
type UnreachableError struct {
	Host string // of the rendezvous
	Err  error  // why; of the operating system where that says so
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("failed to connect to the rendezvous %s: %v", e.Host, e.Err)
}

// Unwrap returns the reason.
func (e *UnreachableError) Unwrap() error { return e.Err }

// maxText is how much of a refusal's text is repeated, in characters.
const maxText = 300

// explain returns an error of opening a websocket without what is secret in its
// URL.
func explain(rawURL string, err error) error {
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
	return &UnreachableError{Host: host, Err: err}
}
