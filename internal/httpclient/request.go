package httpclient

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
)

// Request is what is asked of a server elsewhere. It is not changed, and must not
// be changed before Do has returned; Body not before the response was closed.
type Request struct {
	// Owner is on whose account it is: see Options.PerOwner.
	Owner string
	// Method is a token, sent as it is; CONNECT is none that can be asked for.
	Method string
	// URL is absolute, of http or https. What follows # is not sent. A user and a
	// password in it are sent as basic authentication, unless a header has that.
	URL string
	// Headers are sent in this order, with names in lower case, and before those
	// that a request cannot do without. A host header replaces that of the URL;
	// content-length has to be that of the body; transfer-encoding is refused.
	Headers []Header
	// Body is sent whole. Empty is none.
	Body []byte
	// Timeout is for everything up to the end of the response's body; nil is no
	// bound, and 0 is over at once.
	Timeout *time.Duration
	// Redirects is what becomes of a response that leads elsewhere.
	Redirects Redirects
}

// Header is one line of a head.
type Header struct {
	// Name is a token. It is sent in lower case, and received names are in lower
	// case.
	Name string
	// Value has no control characters but tabs. It need not be UTF-8.
	Value string
}

// Redirects is what becomes of responses that lead elsewhere. The zero value
// follows them.
type Redirects uint8

// What becomes of responses that lead elsewhere.
const (
	Follow Redirects = iota // at most MaxRedirects of them
	Stop                    // they are responses like any other
)

// message is one request on its way, which redirects change.
type message struct {
	method  string
	to      *target
	headers []Header // names in lower case
	body    []byte
}

func invalid(field, problem string) error {
	return &Error{Kind: InvalidRequest, Field: field, Err: errors.New(problem)}
}

// message checks the request and returns what is sent first.
func (r *Request) message() (*message, error) {
	switch {
	case !httpguts.ValidHeaderFieldName(r.Method):
		return nil, invalid("method", "is not an HTTP method")
	case r.Method == http.MethodConnect:
		return nil, invalid("method", "cannot be CONNECT, which is for proxies")
	case r.Timeout != nil && *r.Timeout < 0:
		return nil, invalid("timeout", "is negative")
	case r.Redirects > Stop:
		return nil, invalid("redirects", fmt.Sprintf("cannot be %d", r.Redirects))
	}
	to, err := parseTarget(r.URL)
	if err != nil {
		return nil, invalid("url", err.Error())
	}
	m := &message{method: r.Method, to: to, body: r.Body, headers: make([]Header, len(r.Headers))}
	for i, h := range r.Headers {
		field := fmt.Sprintf("headers[%d].", i)
		if !httpguts.ValidHeaderFieldName(h.Name) {
			return nil, invalid(field+"name", "is not the name of a header")
		}
		if !httpguts.ValidHeaderFieldValue(h.Value) {
			return nil, invalid(field+"value", "has a control character")
		}
		h.Name = strings.ToLower(h.Name)
		if problem := m.collides(h); problem != "" {
			return nil, invalid(field+"value", problem)
		}
		m.headers[i] = h
	}
	return m, nil
}

// collides says what is wrong with a header that is about how the request itself
// is sent. It is called in the order of the headers.
func (m *message) collides(h Header) string {
	switch {
	case h.Name == "transfer-encoding":
		return "cannot be chosen: the body is sent whole"
	case h.Name == "content-length" && h.Value != strconv.Itoa(len(m.body)):
		return fmt.Sprintf("is not the length of the body, which has %d bytes", len(m.body))
	case h.Name == "host" && m.has("host"), h.Name == "content-length" && m.has("content-length"):
		return "is there twice"
	}
	return ""
}

func (m *message) has(name string) bool {
	return slices.ContainsFunc(m.headers, func(h Header) bool { return h.Name == name })
}

// appendHead appends the head as it is sent.
func (m *message) appendHead(dst []byte) []byte {
	dst = fmt.Appendf(dst, "%s %s HTTP/1.1\r\n", m.method, m.to.path)
	for _, h := range m.headers {
		dst = appendHeader(dst, h.Name, h.Value)
	}
	own := []Header{{"accept", "*/*"}, {"host", m.to.authority}}
	if user := m.to.url.User; user != nil {
		password, _ := user.Password()
		basic := base64.StdEncoding.EncodeToString([]byte(user.Username() + ":" + password))
		own = append(own, Header{"authorization", "Basic " + basic})
	}
	if len(m.body) > 0 || m.expectsBody() {
		own = append(own, Header{"content-length", strconv.Itoa(len(m.body))})
	}
	for _, h := range own {
		if !m.has(h.Name) {
			dst = appendHeader(dst, h.Name, h.Value)
		}
	}
	return append(dst, "\r\n"...)
}

// expectsBody reports whether servers may ask for the length of a body that is not
// there.
func (m *message) expectsBody() bool {
	return m.method == http.MethodPost || m.method == http.MethodPut || m.method == http.MethodPatch
}

func appendHeader(dst []byte, name, value string) []byte {
	return append(append(append(append(dst, name...), ": "...), strings.Trim(value, " \t")...), "\r\n"...)
}
