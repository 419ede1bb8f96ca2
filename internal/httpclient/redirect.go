package httpclient

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
)

// MaxRedirects bounds the redirects that a request follows.
const MaxRedirects = 10

var errTooManyRedirects = fmt.Errorf("more than %d redirects", MaxRedirects)

// Headers that a redirect drops.
var (
	// bodyHeaders describe a body that is no longer sent.
	bodyHeaders = []string{"content-type", "content-length", "content-encoding", "content-language", "content-location"}
	// originHeaders are only for the original server.
	originHeaders = []string{"authorization", "proxy-authorization", "cookie", "cookie2", "www-authenticate", "host"}
)

// redirect returns the request that a response redirects to, or nil if it is not
// a redirect.
func (m *message) redirect(response *Response) (*message, error) {
	next := &message{method: m.method, body: m.body, headers: slices.Clone(m.headers)}
	switch response.Status {
	case http.StatusMovedPermanently, http.StatusFound:
		if m.method == http.MethodPost {
			next.toGet()
		}
	case http.StatusSeeOther:
		if m.method != http.MethodHead {
			next.toGet()
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
		return nil, errors.New("redirect to an invalid URL")
	}
	if next.to, err = newTarget(location); err != nil {
		return nil, fmt.Errorf("redirect to a URL that %w", err)
	}
	if !next.to.sameOrigin(m.to) {
		next.drop(originHeaders)
	}
	return next, nil
}

// toGet changes the method to GET and drops the body.
func (m *message) toGet() {
	m.method, m.body = http.MethodGet, nil
	m.drop(bodyHeaders)
}

func (m *message) drop(names []string) {
	m.headers = slices.DeleteFunc(m.headers, func(h Header) bool { return slices.Contains(names, h.Name) })
}
