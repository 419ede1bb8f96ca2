package execserver

import (
	"net/url"
	"strings"
	"unicode/utf8"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/jsonrpc"
)

// wirePath returns an absolute path in the form of the server. field is that of the
// request, for errors.
func wirePath(l *link, field, native string) (string, error) {
	switch {
	case !strings.HasPrefix(native, "/"):
		return "", invalidField(field, "is not an absolute path: write it from / on")
	case l.peer.uris:
		return jsonrpc.FileURI(native), nil
	case !utf8.ValidString(native):
		return "", failure(execwirev1.ErrorReason_ERROR_REASON_NOT_IMPLEMENTED,
			"%s is not UTF-8, and this server does not accept file: URIs, which alone could name it", field)
	}
	return native, nil
}

// nativePath parses a path of the server.
func nativePath(wire string) (string, error) {
	if strings.HasPrefix(wire, "/") {
		return wire, nil
	}
	rest, ok := strings.CutPrefix(wire, "file://")
	if !ok {
		return "", protocolErrorf("%.100q is not a path", wire)
	}
	rest = strings.TrimPrefix(rest, "localhost")
	native, err := url.PathUnescape(rest)
	if err != nil || !strings.HasPrefix(native, "/") {
		return "", protocolErrorf("%.100q is not a path", wire)
	}
	return native, nil
}
