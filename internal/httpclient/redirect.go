package httpclient

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
)

// MaxRedirects is how many redirects of one request are followed.
const MaxRedirects = 10

var errTooManyRedirects = fmt.Errorf("it was led on more than %d times", MaxRedirects)

// Headers that redirects take away.
var (
	// ofBody are about a body that is not sent any more.
	ofBody = []string{"content-type", "content-length", "content-encoding", "content-language", "content-location"}
	// ofOrigin are for the server that they were given for.
	ofOrigin = []string{"authorization", "proxy-authorization", "cookie", "cookie2", "www-authenticate", "host"}
)

// redirected returns what is asked next because of a response, or nil if that is
// the one that was wanted.
func (m *message) redirected(response *Response) (*message, error) {
	next := &message{method: m.method, body: m.body, headers: slices.Clone(m.headers)}
	switch response.Status {
	case http.StatusMovedPermanently, http.StatusFound:
		if m.method == http.MethodPost {
			next.becomeGet()
		}
	case http.StatusSeeOther:
		if m.method != http.MethodHead {
			next.becomeGet()
		}
	case http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
	default:
		return nil, nil
	}
	at := slices.IndexFunc(response.Headers, func(h Header) bool { return h.Name == "location" })
	if at < 0 {
		return nil, nil
	}
	location, err := m.to.url.Parse(response.Headers[at].Value)
	if err != nil {
		return nil, errors.New("it was led to what is no URL")
	}
	if next.to, err = newTarget(location); err != nil {
		return nil, fmt.Errorf("it was led to a URL that %w", err)
	}
	if !next.to.sameOrigin(m.to) {
		next.drop(ofOrigin)
	}
	return next, nil
}

// becomeGet has what is led to only be looked at.
func (m *message) becomeGet() {
	m.method, m.body = http.MethodGet, nil
	m.drop(ofBody)
}

func (m *message) drop(names []string) {
	m.headers = slices.DeleteFunc(m.headers, func(h Header) bool { return slices.Contains(names, h.Name) })
}
