package httpclient

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/net/idna"
)

// target is the destination of a request.
type target struct {
	url       *url.URL
	host      string // to connect to, and in the certificate
	port      string
	authority string // value of the host header
	path      string // in the request line, with the query
}

// Ports of the schemes.
var standardPorts = map[string]string{"http": "80", "https": "443"}

// parseTarget parses an absolute URL. Errors follow the name of the field.
func parseTarget(raw string) (*target, error) {
	u, err := url.Parse(raw)
	if err != nil {
		if inner, ok := errors.AsType[*url.Error](err); ok {
			err = inner.Err // without the URL, which may contain a password
		}
		return nil, fmt.Errorf("is invalid: %w", err)
	}
	if u.Scheme == "" {
		return nil, errors.New("is invalid: relative URL without a base")
	}
	return newTarget(u)
}

// newTarget validates an absolute URL, and retains it.
func newTarget(u *url.URL) (*target, error) {
	standard, known := standardPorts[u.Scheme]
	if !known {
		return nil, fmt.Errorf("must be http or https, got %s", u.Scheme)
	}
	host, err := asciiHost(u.Hostname())
	if err != nil {
		return nil, fmt.Errorf("is invalid: %w", err)
	}
	port := cmp.Or(u.Port(), standard)
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil || number == 0 {
		return nil, fmt.Errorf("is invalid: there is no port %s", port)
	}
	t := &target{url: u, host: host, port: strconv.FormatUint(number, 10), authority: host}
	if strings.Contains(host, ":") {
		address, _, _ := strings.Cut(host, "%") // a zone is local to this host
		t.authority = "[" + address + "]"
	}
	if t.port != standard {
		t.authority += ":" + t.port
	}
	path := cmp.Or(u.RawPath, u.EscapedPath()) // RawPath is set if the encoding differs from net/url's
	if t.path = escape(path, "\"#<>?`{}"); !strings.HasPrefix(t.path, "/") {
		t.path = "/" + t.path
	}
	if u.RawQuery != "" || u.ForceQuery {
		t.path += "?" + escape(u.RawQuery, `"#<>'`)
	}
	return t, nil
}

// asciiHost returns the host for name resolution.
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
			return "", fmt.Errorf("%q is not allowed in a host name", c)
		}
	}
	return strings.ToLower(host), nil
}

// escape percent-encodes what is not allowed in a request line, and the bytes in
// extra, which browsers encode. Existing encodings are kept.
func escape(text, extra string) string {
	var b strings.Builder
	for _, c := range []byte(text) {
		if c <= ' ' || c >= 0x7f || strings.IndexByte(extra, c) >= 0 {
			fmt.Fprintf(&b, "%%%02X", c)
			continue
		}
		b.WriteByte(c)
	}
	return b.String()
}

// String returns the URL without user, password and fragment.
func (t *target) String() string {
	shown := *t.url
	shown.User, shown.Fragment, shown.RawFragment = nil, "", ""
	shown.Path = cmp.Or(shown.Path, "/")
	return shown.String()
}

// forError returns the URL for errors.
func (t *target) forError() string { return truncate(t.String()) }

// sameOrigin reports whether credentials for one may be sent to the other.
func (t *target) sameOrigin(other *target) bool {
	return t.url.Scheme == other.url.Scheme && t.host == other.host && t.port == other.port
}
