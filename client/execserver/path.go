package execserver

import (
	"context"
	"net/url"
	"strings"
	"unicode/utf8"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// PathForm is how a server wants paths written.
type PathForm int

const (
	// PathsAuto finds out by what the server says of itself, and by asking one that
	// says nothing.
	PathsAuto PathForm = iota
	// PathsURI is file: URIs, as servers of the reference take since June 2026. Only
	// these can name paths that are not UTF-8.
	PathsURI
	// PathsAbsolute is absolute paths, as older ones take.
	PathsAbsolute
)

// wirePath writes an absolute path as the server wants it. field is that of the
// request, for the error.
func (c *Conn) wirePath(ctx context.Context, field, native string) (string, error) {
	if _, err := c.current(ctx); err != nil {
		return "", err
	}
	if !strings.HasPrefix(native, "/") {
		return "", invalidField(field, "is not an absolute path: write it from / on")
	}
	if c.features().uris {
		return "file://" + percentEncode(native), nil
	}
	if !utf8.ValidString(native) {
		return "", failure(execwirev1.ErrorReason_ERROR_REASON_NOT_IMPLEMENTED,
			"%s is not UTF-8, and this server takes no file: URIs, which alone could name it", field)
	}
	return native, nil
}

// nativePath reads a path as the server writes it.
func nativePath(wire string) (string, error) {
	if strings.HasPrefix(wire, "/") {
		return wire, nil
	}
	rest, ok := strings.CutPrefix(wire, "file://")
	if !ok {
		return "", protocolErrorf("%.100q is no path", wire)
	}
	rest = strings.TrimPrefix(rest, "localhost")
	native, err := url.PathUnescape(rest)
	if err != nil || !strings.HasPrefix(native, "/") {
		return "", protocolErrorf("%.100q is no path", wire)
	}
	return native, nil
}

// percentEncode encodes the bytes of a path that stand for something else in a URI,
// as servers do that write them.
func percentEncode(s string) string {
	const digits = "0123456789ABCDEF"
	encoded := make([]byte, 0, len(s)+8)
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7f || strings.IndexByte("\"#%<>?\\`{}", c) >= 0 {
			encoded = append(encoded, '%', digits[c>>4], digits[c&15])
		} else {
			encoded = append(encoded, c)
		}
	}
	return string(encoded)
}
