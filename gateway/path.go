package gateway

import (
	"path"
	"strings"
	"unicode/utf8"

	"github.com/execwire/execwire/gateway/jsonrpc"
)

// clientPath is a path as a client wrote it: an absolute path of the machine,
// or a file: URI. What is answered to it has the same form. The zero value is
// none.
type clientPath struct {
	native string // absolute and clean; its bytes need not be UTF-8 if it came as a URI
	uri    bool   // asked as a URI
}

// like renders an absolute path in the form of p. A path that is not UTF-8 has
// its bytes in a URI, and replacement characters in the other form.
func (p clientPath) like(native string) string {
	if p.uri {
		return "file://" + percentEncode(native)
	}
	return lossy(native)
}

// parsePath reads the path of a request, by lexical rules alone: ".." goes back
// to what was written before it, and a slash at the end means nothing. The field
// is the member of the request it is of.
func parsePath(field, raw string) (clientPath, *jsonrpc.Error) {
	if strings.HasPrefix(raw, "/") {
		if strings.IndexByte(raw, 0) >= 0 {
			return clientPath{}, pathRefused(jsonrpc.CodeInvalidRequest, field, "file name contained an unexpected NUL byte")
		}
		return clientPath{native: path.Clean(raw)}, nil
	}
	scheme, rest, ok := cutScheme(raw)
	if !ok {
		return clientPath{}, pathRefused(jsonrpc.CodeInvalidParams, field, "invalid URI: relative URL without a base")
	}
	if scheme = strings.ToLower(scheme); scheme != "file" {
		return clientPath{}, pathRefused(jsonrpc.CodeInvalidParams, field, "unsupported path URI scheme `"+shorten(scheme)+"`")
	}
	native, err := parseFileURI(field, raw, rest)
	return clientPath{native: native, uri: true}, err
}

// parseFileURI returns the path that a URI with the scheme file names; rest is
// what follows the scheme.
func parseFileURI(field, raw, rest string) (string, *jsonrpc.Error) {
	switch i := strings.IndexAny(rest, "?#"); {
	case i >= 0 && rest[i] == '?':
		return "", pathRefused(jsonrpc.CodeInvalidParams, field, "query parameters are not allowed in path URIs")
	case i >= 0:
		return "", pathRefused(jsonrpc.CodeInvalidParams, field, "fragments are not allowed in path URIs")
	}
	if strings.IndexFunc(rest, misread) >= 0 || strings.HasSuffix(rest, " ") {
		return "", pathRefused(jsonrpc.CodeInvalidParams, field, "invalid URI: write backslashes, control characters and a space at the end percent-encoded")
	}
	if authority, ok := strings.CutPrefix(rest, "//"); ok {
		host, _, _ := strings.Cut(authority, "/")
		if host != "" && !strings.EqualFold(host, "localhost") {
			return "", pathRefused(jsonrpc.CodeInvalidRequest, field, "'"+shorten(raw)+"' is invalid on 'linux'")
		}
		rest = "/" + strings.TrimPrefix(authority[len(host):], "/")
	}
	if !strings.HasPrefix(rest, "/") {
		return "", pathRefused(jsonrpc.CodeInvalidParams, field, "invalid URI: relative URL without a base")
	}
	native := percentDecode(rest)
	if strings.IndexByte(native, 0) >= 0 {
		return "", pathRefused(jsonrpc.CodeInvalidParams, field, "'"+shorten(raw)+"' is invalid on 'linux'")
	}
	return path.Clean(native), nil
}

// misread reports characters that parsers of URLs drop or take for others, as
// they drop spaces at the end, which would name another file than the client
// meant.
func misread(r rune) bool { return r < ' ' || r == '\\' }

func pathRefused(code int, field, message string) *jsonrpc.Error {
	return &jsonrpc.Error{Code: code, Message: message, Data: map[string]string{"reason": "INVALID_FIELD", "field": field}}
}

// cutScheme splits a URI behind its scheme.
func cutScheme(raw string) (scheme, rest string, ok bool) {
	scheme, rest, ok = strings.Cut(raw, ":")
	if !ok || scheme == "" || !isLetter(scheme[0]) {
		return "", "", false
	}
	for i := range len(scheme) {
		if c := scheme[i]; !isLetter(c) && (c < '0' || c > '9') && c != '+' && c != '-' && c != '.' {
			return "", "", false
		}
	}
	return scheme, rest, true
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

// percentDecode leaves a percent sign as it is that two hexadecimal digits do
// not follow, as parsers of URLs do.
func percentDecode(s string) string {
	if strings.IndexByte(s, '%') < 0 {
		return s
	}
	decoded := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) && isHex(s[i+1]) && isHex(s[i+2]) {
			decoded = append(decoded, unhex(s[i+1])<<4|unhex(s[i+2]))
			i += 2
			continue
		}
		decoded = append(decoded, s[i])
	}
	return string(decoded)
}

func isHex(c byte) bool { return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f' }

func unhex(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return (c | 0x20) - 'a' + 10
}

// percentEncode encodes the bytes of a path that clients encode in the path of
// a file: URI, so that a URI they made and one of ours are equal as text.
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

// maxQuotedBytes is how much of what a client wrote an error repeats.
const maxQuotedBytes = 256

func shorten(text string) string {
	if len(text) <= maxQuotedBytes {
		return text
	}
	cut := maxQuotedBytes
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "…"
}
