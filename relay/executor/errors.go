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

// codeSuperseded is the close code for an executor that another one with the same
// id has replaced.
const codeSuperseded = 4001

// OptionsError means that an option is missing or invalid.
type OptionsError struct {
	Name    string // the flag of execwire serve, else the field of [Options]
	Problem string // follows the name
	Fix     string // may be empty

	sentence bool // Problem is a complete sentence
}

func (e *OptionsError) Error() string {
	text := e.Name + " " + e.Problem
	if e.sentence {
		text = e.Problem + ": give it with " + e.Name
	}
	if e.Fix != "" {
		text += ": " + e.Fix
	}
	return text
}

// CredentialsError means that credentials are missing or unusable. It contains no
// secrets.
type CredentialsError struct {
	Problem string // what is wrong
	Fix     string // may be empty
	Err     error  // may be nil

	// permanent means that a retry cannot succeed.
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

// Unwrap returns the cause.
func (e *CredentialsError) Unwrap() error { return e.Err }

// Services that requests are sent to.
const (
	serviceRegistry  = "executor registry"
	serviceAuthority = "agent identity authority"
)

// StatusError is a response of the registry, or of the authority of agent
// identities, with an error status.
type StatusError struct {
	Service    string        // "executor registry" or "agent identity authority"
	Status     int           // HTTP status
	Code       string        // error code of the response; may be empty
	Message    string        // error message of the response, at most 4096 characters
	RetryAfter time.Duration // 0 if absent
	Fix        string        // may be empty
}

func (e *StatusError) Error() string {
	status := strings.TrimSpace(fmt.Sprintf("%d %s", e.Status, http.StatusText(e.Status)))
	var text string
	if e.rejected() {
		text = fmt.Sprintf("%s authentication error: %s authentication failed (%s): %s", e.Service, e.Service, status, e.Message)
	} else {
		if e.Code != "" {
			status += ", " + e.Code
		}
		text = fmt.Sprintf("%s request failed (%s): %s", e.Service, status, e.Message)
	}
	if e.Fix != "" {
		text += ": " + e.Fix
	}
	return text
}

// rejected reports whether the credentials were rejected.
func (e *StatusError) rejected() bool {
	return e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden
}

// retryable reports whether the same request may succeed later.
func (e *StatusError) retryable() bool {
	return e.Status == http.StatusRequestTimeout || e.Status == http.StatusTooManyRequests || e.Status >= 500
}

// RequestError is a request without a response.
type RequestError struct {
	Service string // as in [StatusError]
	Host    string // that it was for
	Err     error  // why
}

func (e *RequestError) Error() string {
	text := fmt.Sprintf("%s at %s did not respond: %v", e.Service, e.Host, e.Err)
	switch {
	case errors.As(e.Err, new(x509.UnknownAuthorityError)) && e.Service == serviceRegistry:
		text += ": if its certificate authority is to be trusted, name it with --remote-tls-ca"
	case errors.Is(e.Err, io.EOF) && e.Service == serviceRegistry:
		text += ": if it accepts only TLS, use https://"
	case errors.Is(e.Err, http.ErrSchemeMismatch) && e.Service == serviceRegistry:
		text += ": if it is on this host, use http://"
	}
	return text
}

// Unwrap returns the cause.
func (e *RequestError) Unwrap() error { return e.Err }

// connectError converts an error of dialing u. It does not contain the query of
// the URL, which is a credential.
func connectError(u *url.URL, err error) error {
	secrets := secretsOf(u)
	if refused, ok := errors.AsType[*wsconn.RefusedError](err); ok {
		text := fmt.Sprintf("status %d", refused.Status)
		if message := sanitize(refused.Text, secrets...); message != "" {
			text += ": " + message
		}
		err = errors.New(text)
	} else if request, ok := errors.AsType[*url.Error](err); ok {
		err = request.Err // the text of the outer error contains the URL
	}
	if text := err.Error(); sanitize(text, secrets...) != text {
		err = errors.New(sanitize(text, secrets...))
	}
	return fmt.Errorf("failed to connect to the rendezvous %s: %w", redacted(u), err)
}

// errClosed means that the websocket was closed normally.
var errClosed = errors.New("the rendezvous closed the connection")

// SupersededError means that another executor has registered with the same id and
// replaced this one.
type SupersededError struct {
	ExecutorID string // of both
	Reason     string // from the rendezvous
}

func (e *SupersededError) Error() string {
	return fmt.Sprintf("another executor has registered as %s and replaced this one (%q): give each executor its own --executor-id, or stop the other one",
		e.ExecutorID, e.Reason)
}

func timedOut(after time.Duration) error { return fmt.Errorf("timed out after %v", after) }

// Final reports whether retrying after err is pointless. Before the first
// registration an error means a wrong configuration, unless it is a transient
// failure of the network or the registry. Later the configuration has already
// worked, so only rejected credentials or another executor with the same id are
// final.
func Final(err error, registered bool) bool {
	if _, ok := errors.AsType[*SupersededError](err); ok {
		return true
	}
	if credentials, ok := errors.AsType[*CredentialsError](err); ok && credentials.permanent {
		return true
	}
	status, hasStatus := errors.AsType[*StatusError](err)
	if hasStatus && status.rejected() {
		return true
	}
	if registered {
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
