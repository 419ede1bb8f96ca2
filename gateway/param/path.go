package param

import (
	"fmt"
	"path"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/execwire/execwire/internal/jsonrpc"
)

// Path is a path as the client wrote it: an absolute path or a file: URI. Answers use
// the same form. The zero value is no path.
type Path struct {
	Native string // absolute and clean; not necessarily UTF-8 if it came as a URI
	URI    bool   // the client wrote a URI
}

// Like formats an absolute path in the form of p. Bytes that are not UTF-8 are
// percent-encoded in a URI and replaced by U+FFFD in a plain path.
func (p Path) Like(native string) string {
	if p.URI {
		return jsonrpc.FileURI(native)
	}
	return ToUTF8(native)
}

// UnmarshalText parses a parameter that is a path.
func (p *Path) UnmarshalText(text []byte) error {
	parsed, err := parsePath(string(text))
	if err != nil {
		return err
	}
	*p = parsed
	return nil
}

// ParsePath parses the path in the member field, lexically: ".." removes the element
// before it, and a trailing slash has no meaning.
func ParsePath(field, raw string) (Path, *jsonrpc.Error) {
	parsed, err := parsePath(raw)
	if err != nil {
		return Path{}, NewError(err.Code, field, err.Message)
	}
	return parsed, nil
}

func parsePath(raw string) (Path, *jsonrpc.Error) {
	if strings.HasPrefix(raw, "/") {
		if strings.IndexByte(raw, 0) >= 0 {
			return Path{}, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "file name contained an unexpected NUL byte")
		}
		return Path{Native: path.Clean(raw)}, nil
	}
	scheme, rest, ok := cutScheme(raw)
	if !ok {
		return Path{}, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "invalid URI: relative URL without a base")
	}
	if scheme = strings.ToLower(scheme); scheme != "file" {
		return Path{}, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "unsupported path URI scheme `%s`", Shorten(scheme))
	}
	native, err := parseFileURI(raw, rest)
	return Path{Native: native, URI: true}, err
}

// parseFileURI returns the path in a file URI; rest follows the scheme.
func parseFileURI(raw, rest string) (string, *jsonrpc.Error) {
	switch i := strings.IndexAny(rest, "?#"); {
	case i >= 0 && rest[i] == '?':
		return "", jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "query parameters are not allowed in path URIs")
	case i >= 0:
		return "", jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "fragments are not allowed in path URIs")
	}
	if strings.IndexFunc(rest, isMisread) >= 0 || strings.HasSuffix(rest, " ") {
		return "", jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "invalid URI: write backslashes, control characters and a space at the end percent-encoded")
	}
	if authority, ok := strings.CutPrefix(rest, "//"); ok {
		host, _, _ := strings.Cut(authority, "/")
		if host != "" && !strings.EqualFold(host, "localhost") {
			return "", jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "'%s' is invalid on 'linux'", Shorten(raw))
		}
		rest = "/" + strings.TrimPrefix(authority[len(host):], "/")
	}
	if !strings.HasPrefix(rest, "/") {
		return "", jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "invalid URI: relative URL without a base")
	}
	native := percentDecode(rest)
	if strings.IndexByte(native, 0) >= 0 {
		return "", jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "'%s' is invalid on 'linux'", Shorten(raw))
	}
	return path.Clean(native), nil
}

// isMisread reports characters that URL parsers drop or convert, so that they would
// name another file than the client meant.
func isMisread(r rune) bool { return r < ' ' || r == '\\' }

// cutScheme splits a URI after its scheme.
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

// percentDecode keeps a percent sign that two hexadecimal digits do not follow, as URL
// parsers do.
func percentDecode(s string) string {
	decoded := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c == '%' && i+2 < len(s) {
			if code, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
				c = byte(code)
				i += 2
			}
		}
		decoded = append(decoded, c)
	}
	return string(decoded)
}

// Below returns an absolute path below p; raw has it if it is not UTF-8. Both may be
// empty.
func (p Path) Below(relative string, raw []byte) string {
	if len(raw) > 0 {
		relative = string(raw)
	}
	if relative == "" {
		return p.Native
	}
	return strings.TrimSuffix(p.Native, "/") + "/" + relative
}

// ParsePaths parses a list of paths as ParsePath does.
func ParsePaths(field string, raw []string) ([]Path, *jsonrpc.Error) {
	paths := make([]Path, 0, len(raw))
	for i, text := range raw {
		path, err := ParsePath(fmt.Sprintf("%s[%d]", field, i), text)
		if err != nil {
			return nil, err
		}
		paths = append(paths, path)
	}
	return paths, nil
}

// ProtoPath returns the path for the fields of a request: text, or bytes if it is not
// UTF-8.
func (p Path) ProtoPath() (text string, raw []byte) {
	if utf8.ValidString(p.Native) {
		return p.Native, nil
	}
	return "", []byte(p.Native)
}
