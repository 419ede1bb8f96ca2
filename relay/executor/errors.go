package executor

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/execwire/execwire/internal/wsconn"
)

// codeSuperseded is the close code of a rendezvous for an executor whose place
// another one with the same id has taken.
const codeSuperseded = 4001

// OptionsError is an option that is missing or wrong.
type OptionsError struct {
	Name    string // the flag of execwire serve that sets it, else the field of [Options]
	Problem string // what is wrong, to be read after the name
	Fix     string // what to do; may be empty

	whole bool // Problem says it all
}

func (e *OptionsError) Error() string {
	text := e.Name + " " + e.Problem
	if e.whole {
		text = e.Problem + ": give it with " + e.Name
	}
	if e.Fix != "" {
		text += ": " + e.Fix
	}
	return text
}

// CredentialsError says why there is nothing to show to the registry. It holds
// nothing of what is secret.
type CredentialsError struct {
	Problem string // what is wrong
	Fix     string // what to do; may be empty
	Err     error  // why; may be nil

	// permanent is what no later attempt can find in order.
	permanent bool
}

func (e *CredentialsError) Error() string {
	text := e.Problem
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	if e.Fix != "" {
		text += ": " + e.Fix
	}
	return text
}

// Unwrap returns why.
func (e *CredentialsError) Unwrap() error { return e.Err }

// Who answers requests.
const (
	whoRegistry  = "executor registry"
	whoAuthority = "agent identity authority"
)

// StatusError is an answer of the registry, or of the authority of agent
// identities, with a status that is no success.
type StatusError struct {
	Who        string        // "executor registry" or "agent identity authority"
	Status     int           // of HTTP
	Code       string        // what the answer calls the failure; may be empty
	Message    string        // what the answer says about it, at most 4096 characters
	RetryAfter time.Duration // how long it asks to wait; 0 if it does not
	Fix        string        // what to do; may be empty
}

func (e *StatusError) Error() string {
	status := strings.TrimSpace(fmt.Sprintf("%d %s", e.Status, http.StatusText(e.Status)))
	var text string
	if e.refused() {
		text = fmt.Sprintf("%s authentication error: %s authentication failed (%s): %s", e.Who, e.Who, status, e.Message)
	} else {
		if e.Code != "" {
			status += ", " + e.Code
		}
		text = fmt.Sprintf("%s request failed (%s): %s", e.Who, status, e.Message)
	}
	if e.Fix != "" {
		text += ": " + e.Fix
	}
	return text
}

// refused reports whether credentials are not good enough.
func (e *StatusError) refused() bool {
	return e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden
}

// retryable reports whether the same request may well succeed later.
func (e *StatusError) retryable() bool {
	return e.Status == http.StatusRequestTimeout || e.Status == http.StatusTooManyRequests || e.Status >= 500
}

// AnswerError is an answer with a status of success that makes no sense.
type AnswerError struct {
	Who     string // as that of [StatusError]
	Problem string // what is wrong with it
}

func (e *AnswerError) Error() string {
	return fmt.Sprintf("error decoding response body of the %s: %s", e.Who, e.Problem)
}

// RequestError is a request that got no answer.
type RequestError struct {
	Who  string // as that of [StatusError]
	Host string // that it was for
	Err  error  // why
}

func (e *RequestError) Error() string {
	text := fmt.Sprintf("%s at %s gave no answer: %v", e.Who, e.Host, e.Err)
	switch {
	case errors.As(e.Err, new(x509.UnknownAuthorityError)) && e.Who == whoRegistry:
		text += ": name the authority that signed its certificate with --remote-ca, if it is to be trusted"
	case errors.Is(e.Err, io.EOF) && e.Who == whoRegistry:
		text += ": if what listens there speaks TLS alone, write its address as https://"
	case errors.Is(e.Err, http.ErrSchemeMismatch) && e.Who == whoRegistry:
		text += ": if it is on this host, write its address as http://"
	}
	return text
}

// Unwrap returns why.
func (e *RequestError) Unwrap() error { return e.Err }

// ConnectError is a websocket that could not be opened. It holds nothing of the
// query of its URL, which is a credential.
type ConnectError struct {
	URL    string // without the query
	Status int    // of HTTP, if the rendezvous answered; else 0
	Err    error  // why
}

func (e *ConnectError) Error() string {
	return fmt.Sprintf("failed to connect to the rendezvous %s: %v", e.URL, e.Err)
}

// Unwrap returns why.
func (e *ConnectError) Unwrap() error { return e.Err }

// connectError makes a *ConnectError of an error of dialing u.
func connectError(u *url.URL, err error) error {
	connecting := &ConnectError{URL: masked(u), Err: err}
	secrets := secretsOf(u)
	if refused, ok := errors.AsType[*wsconn.RefusedError](err); ok {
		connecting.Status = refused.Status
		text := fmt.Sprintf("it answered %d", refused.Status)
		if said := readable(refused.Text, secrets...); said != "" {
			text += ": " + said
		}
		connecting.Err = errors.New(text)
	} else if request, ok := errors.AsType[*url.Error](err); ok {
		connecting.Err = request.Err // its own text has the whole URL
	}
	if text := connecting.Err.Error(); readable(text, secrets...) != text {
		connecting.Err = errors.New(readable(text, secrets...))
	}
	return connecting
}

// LostError is a websocket that was open and ended.
type LostError struct {
	Host string // of the rendezvous
	Err  error  // why, as the one that served it says
}

func (e *LostError) Error() string {
	return fmt.Sprintf("lost the connection to the rendezvous %s: %v", e.Host, e.Err)
}

// Unwrap returns why.
func (e *LostError) Unwrap() error { return e.Err }

// errClosed is a websocket that was closed in the normal way.
var errClosed = errors.New("it closed the connection")

// SilentError is a rendezvous that did not answer a ping.
type SilentError struct {
	For time.Duration // how long it was waited for
}

func (e *SilentError) Error() string {
	return fmt.Sprintf("it has not answered a ping for %v", e.For)
}

// SupersededError is another program that registered the same id and took the
// place of this one.
type SupersededError struct {
	ExecutorID string // that both have
	Reason     string // as the rendezvous gave it
}

func (e *SupersededError) Error() string {
	return fmt.Sprintf("another executor has registered as %s and taken the place of this one (%q): give each executor an --executor-id of its own, or stop the other one",
		e.ExecutorID, e.Reason)
}

// timeoutError is what took longer than it may.
type timeoutError struct{ after time.Duration }

func (e *timeoutError) Error() string { return fmt.Sprintf("it took longer than %v", e.after) }

// Timeout reports true, as those of package net do.
func (e *timeoutError) Timeout() bool { return true }

// Final reports whether it makes no sense to try again after err. What is wrong
// when an executor registers for the first time is wrong with its configuration,
// unless the network or the registry may get over it; what is wrong later was
// right once, so that only credentials that are refused, or another executor in
// its place, end it.
func Final(err error, registered bool) bool {
	if _, ok := errors.AsType[*SupersededError](err); ok {
		return true
	}
	if credentials, ok := errors.AsType[*CredentialsError](err); ok && credentials.permanent {
		return true
	}
	status, hasStatus := errors.AsType[*StatusError](err)
	if hasStatus && status.refused() {
		return true
	}
	if registered {
		return false
	}
	switch err.(type) {
	case *ConnectError, *LostError: // it had registered
		return false
	}
	if request, ok := errors.AsType[*RequestError](err); ok {
		_, untrusted := errors.AsType[*tls.CertificateVerificationError](request)
		return untrusted
	}
	return !(hasStatus && status.retryable())
}

// retryAfter returns how long err asks to wait.
func retryAfter(err error) time.Duration {
	if status, ok := errors.AsType[*StatusError](err); ok {
		return status.RetryAfter
	}
	return 0
}
