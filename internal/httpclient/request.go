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

// Request is a request. It is not modified, and must not be until Do has
// returned; Body not until the response is closed.
type Request struct {
	// Owner is whose limit the request counts against: see Options.PerOwner.
	Owner string
	// Method is a token, sent as is. CONNECT is not allowed.
	Method string
	// URL is an absolute http or https URL. The fragment is not sent. User and
	// password are sent as basic authentication, unless Headers has an
	// authorization.
	URL string
	// Headers are sent in this order, with lower-case names, before required
	// headers that are missing. A host header replaces that of the URL;
	// content-length must match the body; transfer-encoding is rejected.
	Headers []Header
	// Body is sent with a length. May be empty.
	Body []byte
	// Timeout bounds the request until the end of the response body; nil means no
	// timeout, and 0 expires at once.
	Timeout *time.Duration
	// Redirects is how redirects are handled.
	Redirects Redirects
}

// Header is a header line.
type Header struct {
	// Name is a token. It is sent in lower case; received names are in lower
	// case.
	Name string
	// Value has no control characters except tabs. It need not be UTF-8.
	Value string
}

// Redirects is how redirects are handled. The zero value follows them.
type Redirects uint8

// Values of Redirects.
const (
	Follow Redirects = iota // at most MaxRedirects
	Stop                    // return them as responses
)

// message is a request to be sent; redirects create new ones.
type message struct {
	method  string
	to      *target
	headers []Header // names in lower case
	body    []byte
}

func invalid(field, problem string) error {
	return &Error{Kind: InvalidRequest, Field: field, Err: errors.New(problem)}
}

// message validates the request and returns the first message.
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
		if problem := m.headerProblem(h); problem != "" {
			return nil, invalid(field+"value", problem)
		}
		m.headers[i] = h
	}
	return m, nil
}

// headerProblem describes why a header conflicts with how the request is sent;
// empty if it does not. It is called for the headers in order.
func (m *message) headerProblem(h Header) string {
	switch {
	case h.Name == "transfer-encoding":
		return "cannot be set: the body is sent with a length"
	case h.Name == "content-length" && h.Value != strconv.Itoa(len(m.body)):
		return fmt.Sprintf("is not the length of the body, which has %d bytes", len(m.body))
	case h.Name == "host" && m.has("host"), h.Name == "content-length" && m.has("content-length"):
		return "is duplicated"
	}
	return ""
}

func (m *message) has(name string) bool {
	return slices.ContainsFunc(m.headers, func(h Header) bool { return h.Name == name })
}

// appendHead appends the head.
func (m *message) appendHead(dst []byte) []byte {
	dst = fmt.Appendf(dst, "%s %s HTTP/1.1\r\n", m.method, m.to.path)
	for _, h := range m.headers {
		dst = appendHeader(dst, h.Name, h.Value)
	}
	required := []Header{{"accept", "*/*"}, {"host", m.to.authority}}
	if user := m.to.url.User; user != nil {
		password, _ := user.Password()
		basic := base64.StdEncoding.EncodeToString([]byte(user.Username() + ":" + password))
		required = append(required, Header{"authorization", "Basic " + basic})
	}
	if len(m.body) > 0 || m.expectsBody() {
		required = append(required, Header{"content-length", strconv.Itoa(len(m.body))})
	}
	for _, h := range required {
		if !m.has(h.Name) {
			dst = appendHeader(dst, h.Name, h.Value)
		}
	}
	return append(dst, "\r\n"...)
}

// expectsBody reports whether servers may require content-length for an empty
// body.
func (m *message) expectsBody() bool {
	return m.method == http.MethodPost || m.method == http.MethodPut || m.method == http.MethodPatch
}

func appendHeader(dst []byte, name, value string) []byte {
	return append(append(append(append(dst, name...), ": "...), strings.Trim(value, " \t")...), "\r\n"...)
}
