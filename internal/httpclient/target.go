package httpclient

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/net/idna"
)

// target is where a request goes.
type target struct {
	url       *url.URL
	host      string // to connect to, and to expect a certificate of
	port      string
	authority string // as the host header has it
	path      string // as the request line has it, with the query
}

// Ports of the schemes.
var standardPorts = map[string]string{"http": "80", "https": "443"}

// parseTarget reads an absolute URL. Its errors are to be read after the name of
// the field.
func parseTarget(raw string) (*target, error) {
	u, err := url.Parse(raw)
	if err != nil {
		var inner *url.Error
		if errors.As(err, &inner) {
			err = inner.Err // without the URL, which may hold a password
		}
		return nil, fmt.Errorf("is invalid: %w", err)
	}
	if u.Scheme == "" {
		return nil, errors.New("is invalid: relative URL without a base")
	}
	return newTarget(u)
}

// newTarget looks at an absolute URL, which it keeps.
func newTarget(u *url.URL) (*target, error) {
	standard, known := standardPorts[u.Scheme]
	if !known {
		return nil, fmt.Errorf("has to be of http or https, got %s", u.Scheme)
	}
	host, err := asciiHost(u.Hostname())
	if err != nil {
		return nil, fmt.Errorf("is invalid: %w", err)
	}
	port := u.Port()
	if port == "" {
		port = standard
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil || number == 0 {
		return nil, fmt.Errorf("is invalid: there is no port %s", port)
	}
	t := &target{url: u, host: host, port: strconv.FormatUint(number, 10), authority: host}
	if strings.Contains(host, ":") {
		address, _, _ := strings.Cut(host, "%") // a zone means nothing elsewhere
		t.authority = "[" + address + "]"
	}
	if t.port != standard {
		t.authority += ":" + t.port
	}
	path := u.RawPath // if it is not as net/url would write it
	if path == "" {
		path = u.EscapedPath()
	}
	if t.path = escape(path, "\"#<>?`{}"); !strings.HasPrefix(t.path, "/") {
		t.path = "/" + t.path
	}
	if u.RawQuery != "" || u.ForceQuery {
		t.path += "?" + escape(u.RawQuery, `"#<>'`)
	}
	return t, nil
}

// asciiHost is the host as it is resolved.
func asciiHost(host string) (string, error) {
	if host == "" {
		return "", errors.New("empty host")
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return host, nil
	}
	for _, c := range []byte(host) {
		if c >= 0x80 {
			return idna.Lookup.ToASCII(host)
		}
		if c <= ' ' || strings.IndexByte(`"#%/<>?@[\]^|`+"`{}\x7f", c) >= 0 {
			return "", fmt.Errorf("%q cannot be in the name of a host", c)
		}
	}
	return strings.ToLower(host), nil
}

// escape escapes what must not be in a request line, and what browsers escape
// besides. What is escaped already stays as it is.
func escape(text, besides string) string {
	var b strings.Builder
	for _, c := range []byte(text) {
		if c <= ' ' || c >= 0x7f || strings.IndexByte(besides, c) >= 0 {
			fmt.Fprintf(&b, "%%%02X", c)
			continue
		}
		b.WriteByte(c)
	}
	return b.String()
}

// String is the URL as it is told: without user, password and fragment.
func (t *target) String() string {
	shown := *t.url
	shown.User, shown.Fragment, shown.RawFragment = nil, "", ""
	if shown.Path == "" {
		shown.Path = "/"
	}
	return shown.String()
}

// told is the URL as errors have it.
func (t *target) told() string { return shorten(t.String()) }

// sameOrigin reports whether what is meant for one may be shown to the other.
func (t *target) sameOrigin(other *target) bool {
	return t.url.Scheme == other.url.Scheme && t.host == other.host && t.port == other.port
}
