package executor

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/execwire/execwire/internal/sockowner"
)

// Limits of responses.
const (
	maxAnswerBytes  = 1 << 20
	maxHeaderBytes  = 64 << 10
	maxMessageRunes = 4096
	// maxRetryAfter caps the delay that a registry can request.
	maxRetryAfter = 5 * time.Minute
)

// client sends requests with credentials. It follows no redirects, bounds time
// and size, and keeps secrets out of errors. It may be used concurrently.
type client struct {
	service string
	timeout time.Duration
	http    *http.Client
}

func newClient(service string, timeout time.Duration, config *tls.Config) *client {
	return &client{service: service, timeout: timeout, http: &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy:                  http.ProxyFromEnvironment,
			DialContext:            sockowner.Dialer().DialContext,
			TLSClientConfig:        config.Clone(),
			DisableKeepAlives:      true, // requests are minutes apart
			DisableCompression:     true,
			MaxResponseHeaderBytes: maxHeaderBytes,
		},
	}}
}

// do sends a request and returns the body of a successful response. secrets are
// removed from the error, which is a *StatusError, a *RequestError or about the
// response.
func (c *client) do(ctx context.Context, method, to string, header http.Header, body []byte, secrets ...string) (object, error) {
	ctx, stop := context.WithTimeoutCause(ctx, c.timeout, timedOut(c.timeout))
	defer stop()
	request, err := http.NewRequestWithContext(ctx, method, to, bytes.NewReader(body))
	if err != nil {
		return nil, &RequestError{Service: c.service, Err: errors.New("the URL is invalid")}
	}
	maps.Copy(request.Header, header)
	response, err := c.http.Do(request)
	if err != nil {
		return nil, c.requestError(ctx, request.URL.Host, err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswerBytes+1))
	success := response.StatusCode/100 == 2
	switch {
	case err != nil && success:
		return nil, c.requestError(ctx, request.URL.Host, err)
	case !success:
		return nil, c.statusError(response, text, secrets)
	case len(text) > maxAnswerBytes:
		return nil, responseError(c.service, fmt.Sprintf("larger than %d bytes", maxAnswerBytes))
	}
	var members object
	if err := json.Unmarshal(text, &members); err != nil || members == nil {
		return nil, responseError(c.service, "not a JSON object")
	}
	return members, nil
}

// requestError converts an error of net/http, whose text has the URL.
func (c *client) requestError(ctx context.Context, host string, err error) error {
	if request, ok := errors.AsType[*url.Error](err); ok {
		err = request.Err
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return &RequestError{Service: c.service, Host: host, Err: err}
}

func (c *client) statusError(response *http.Response, text []byte, secrets []string) error {
	failure := &StatusError{Service: c.service, Status: response.StatusCode, RetryAfter: parseRetryAfter(response.Header.Get("Retry-After"), time.Now())}
	var members struct {
		Error *struct {
			Code, Message *string
		}
	}
	message := string(text)
	if err := json.Unmarshal(text, &members); err == nil && members.Error != nil {
		if members.Error.Code != nil {
			failure.Code = truncate(sanitize(*members.Error.Code, secrets...), 64)
		}
		if members.Error.Message != nil {
			message = *members.Error.Message
		}
	}
	failure.Message = sanitize(message, secrets...)
	failure.Message = cmp.Or(failure.Message, "empty error body")
	return failure
}

// responseError is the error for an invalid response with a success status.
func responseError(service, problem string) error {
	return fmt.Errorf("error decoding response body of the %s: %s", service, problem)
}

// parseRetryAfter parses seconds or a date; anything else is 0.
func parseRetryAfter(text string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return min(time.Duration(seconds)*time.Second, maxRetryAfter)
	}
	if at, err := http.ParseTime(text); err == nil {
		return min(max(at.Sub(now), 0), maxRetryAfter)
	}
	return 0
}

// sanitize makes untrusted text a single line that is safe to show on a terminal,
// with secrets replaced by ….
func sanitize(text string, secrets ...string) string {
	for _, secret := range secrets {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "…")
		}
	}
	text = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, strings.ToValidUTF8(text, "�"))
	return truncate(strings.TrimSpace(text), maxMessageRunes)
}

// object is a JSON object with case-sensitive names, unlike a struct.
type object map[string]json.RawMessage

// stringMember returns a member that is a string.
func (o object) stringMember(name string) (string, bool) {
	var text *string
	if err := json.Unmarshal(o[name], &text); err != nil || text == nil {
		return "", false
	}
	return *text, true
}

// intMember returns a member that is an integer, else 0.
func (o object) intMember(name string) int64 {
	var n int64
	if err := json.Unmarshal(o[name], &n); err != nil {
		return 0
	}
	return n
}
