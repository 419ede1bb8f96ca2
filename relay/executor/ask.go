package executor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Limits of answers.
const (
	maxAnswerBytes  = 1 << 20
	maxHeaderBytes  = 64 << 10
	maxMessageRunes = 4096
	// maxRetryAfter is the longest wait that a registry can ask for.
	maxRetryAfter = 5 * time.Minute
)

// asker makes requests with credentials: it follows no redirects, bounds time
// and size, and keeps what is secret out of errors. It may be used concurrently.
type asker struct {
	who     string
	timeout time.Duration
	client  *http.Client
}

func newAsker(who string, o askOptions) *asker {
	return &asker{who: who, timeout: o.timeout, client: &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy:                  http.ProxyFromEnvironment,
			TLSClientConfig:        o.tls.Clone(),
			DisableKeepAlives:      true, // there are minutes between two requests
			DisableCompression:     true,
			MaxResponseHeaderBytes: maxHeaderBytes,
		},
	}}
}

// ask makes a request and returns the body of an answer of success. A nil body
// sends none. secrets are kept out of the error, which is a *StatusError, an
// *AnswerError or a *RequestError.
func (a *asker) ask(ctx context.Context, method, to string, header http.Header, body []byte, secrets ...string) (object, error) {
	ctx, stop := context.WithTimeoutCause(ctx, a.timeout, &timeoutError{a.timeout})
	defer stop()
	request, err := http.NewRequestWithContext(ctx, method, to, bytes.NewReader(body))
	if err != nil {
		return nil, &RequestError{Who: a.who, Err: errors.New("its URL cannot be used")}
	}
	for name, values := range header {
		request.Header[name] = values
	}
	answer, err := a.client.Do(request)
	if err != nil {
		return nil, a.failed(ctx, request.URL.Host, err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswerBytes+1))
	success := answer.StatusCode/100 == 2
	switch {
	case err != nil && success:
		return nil, a.failed(ctx, request.URL.Host, err)
	case !success:
		return nil, a.statusError(answer, text, secrets)
	case len(text) > maxAnswerBytes:
		return nil, &AnswerError{Who: a.who, Problem: fmt.Sprintf("it is larger than %d bytes", maxAnswerBytes)}
	}
	var members object
	if err := json.Unmarshal(text, &members); err != nil || members == nil {
		return nil, &AnswerError{Who: a.who, Problem: "it is not a JSON object"}
	}
	return members, nil
}

// failed makes a *RequestError of what the library says, whose text has the URL.
func (a *asker) failed(ctx context.Context, host string, err error) error {
	if request, ok := errors.AsType[*url.Error](err); ok {
		err = request.Err
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return &RequestError{Who: a.who, Host: host, Err: err}
}

func (a *asker) statusError(answer *http.Response, text []byte, secrets []string) error {
	failure := &StatusError{Who: a.who, Status: answer.StatusCode, RetryAfter: parseRetryAfter(answer.Header.Get("Retry-After"), time.Now())}
	var members struct {
		Error *struct {
			Code, Message *string
		}
	}
	said := string(text)
	if err := json.Unmarshal(text, &members); err == nil && members.Error != nil {
		if members.Error.Code != nil {
			failure.Code = shorten(readable(*members.Error.Code, secrets...), 64)
		}
		if members.Error.Message != nil {
			said = *members.Error.Message
		}
	}
	failure.Message = readable(said, secrets...)
	if failure.Message == "" {
		failure.Message = "empty error body"
	}
	return failure
}

// parseRetryAfter reads seconds or a date; what is neither is no wish.
func parseRetryAfter(text string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return min(time.Duration(seconds)*time.Second, maxRetryAfter)
	}
	if at, err := http.ParseTime(text); err == nil {
		return min(max(at.Sub(now), 0), maxRetryAfter)
	}
	return 0
}

// readable makes of text, which is anybody's, one line that can be shown at a
// terminal, with … in place of secrets.
func readable(text string, secrets ...string) string {
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
	return shorten(strings.TrimSpace(text), maxMessageRunes)
}

// object is a JSON object whose names are what they are: a struct would also be
// filled from names that differ in case.
type object map[string]json.RawMessage

// text returns a member that is a string; anything else is not there.
func (o object) text(name string) (string, bool) {
	var text *string
	if err := json.Unmarshal(o[name], &text); err != nil || text == nil {
		return "", false
	}
	return *text, true
}

// number returns a member that is a whole number, else 0.
func (o object) number(name string) int64 {
	var n int64
	if err := json.Unmarshal(o[name], &n); err != nil {
		return 0
	}
	return n
}
