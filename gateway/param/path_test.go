package param

import (
	"net/url"
	"path"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/execwire/execwire/internal/jsonrpc"
)

func TestPath_Forms(t *testing.T) {
	tests := []struct{ raw, native, like string }{
		{"/x/f", "/x/f", "/x/f"},
		{"/", "/", "/"},
		{"/x/../y/./f", "/y/f", "/y/f"},
		{"/../..", "/", "/"},
		{"/x//f/", "/x/f", "/x/f"},
		{"/sp ace%41?#", "/sp ace%41?#", "/sp ace%41?#"},
		{"file:///x/f", "/x/f", "file:///x/f"},
		{"file:/x/f", "/x/f", "file:///x/f"},
		{"FILE:///x/f", "/x/f", "file:///x/f"},
		{"file://localhost/x/f", "/x/f", "file:///x/f"},
		{"file://LocalHost", "/", "file:///"},
		{"file://", "/", "file:///"},
		{"file:///", "/", "file:///"},
		{"file:////x", "/x", "file:///x"},
		{"file:///sp%20ace%2541", "/sp ace%41", "file:///sp%20ace%2541"},
		{"file:///sp ace%41", "/sp aceA", "file:///sp%20aceA"},
		{"file:///x/./y/../f/", "/x/f", "file:///x/f"},
		{"file:///x/%2e%2E/f", "/f", "file:///f"},
		{"file:///100%/%4/%zz", "/100%/%4/%zz", "file:///100%25/%254/%25zz"},
		{"file:///%C3%A9/é", "/é/é", "file:///%C3%A9/%C3%A9"},
		{"file:///bad%ff", "/bad\xff", "file:///bad%FF"},
		{"file:///a%20", "/a ", "file:///a%20"},
		{"file:///a%5Cb%0A", "/a\\b\n", "file:///a%5Cb%0A"},
		{"file:///a^[b]|'&+,;=:@$!*()~", "/a^[b]|'&+,;=:@$!*()~", "file:///a^[b]|'&+,;=:@$!*()~"},
		{"file:///%22%23%3C%3E%3F%60%7B%7D%7F", "/\"#<>?`{}\x7f", "file:///%22%23%3C%3E%3F%60%7B%7D%7F"},
	}
	for _, tt := range tests {
		got, err := ParsePath("path", tt.raw)
		if err != nil || got.Native != tt.native || got.Like(got.Native) != tt.like {
			t.Errorf("%q is %q, formatted as %q (%v); want %q, formatted as %q", tt.raw, got.Native, got.Like(got.Native), err, tt.native, tt.like)
		}
	}
}

func TestPath_Errors(t *testing.T) {
	const relative = "invalid URI: relative URL without a base"
	const misreadable = "invalid URI: write backslashes, control characters and a space at the end percent-encoded"
	tests := []struct {
		raw, message string
		code         int
	}{
		{"", relative, -32602},
		{"f", relative, -32602},
		{"./f", relative, -32602},
		{"~", relative, -32602},
		{"~/x", relative, -32602},
		{":/x", relative, -32602},
		{"1file:/x", relative, -32602},
		{"a b:/x", relative, -32602},
		{"file:", relative, -32602},
		{"file:x", relative, -32602},
		{"http://localhost/x", "unsupported path URI scheme `http`", -32602},
		{"C:\\x", "unsupported path URI scheme `c`", -32602},
		{"/nul\x00byte", "file name contained an unexpected NUL byte", -32600},
		{"file:///nul%00byte", "'file:///nul%00byte' is invalid on 'linux'", -32602},
		{"file://otherhost/x", "'file://otherhost/x' is invalid on 'linux'", -32600},
		{"file:///f?q=1", "query parameters are not allowed in path URIs", -32602},
		{"file:///f?q=1#frag", "query parameters are not allowed in path URIs", -32602},
		{"file:///f#frag?", "fragments are not allowed in path URIs", -32602},
		{"file:///a\\b", misreadable, -32602},
		{"file:///a\nb", misreadable, -32602},
		{"file:///a ", misreadable, -32602},
	}
	for _, tt := range tests {
		_, err := ParsePath("sourcePath", tt.raw)
		if err == nil || err.Code != tt.code || err.Message != tt.message {
			t.Errorf("%q returns %+v, want %d %s", tt.raw, err, tt.code, tt.message)
			continue
		}
		if data, _ := err.Data.(jsonrpc.InvalidField); data.Field != "sourcePath" {
			t.Errorf("%q: the error names the field %q", tt.raw, data.Field)
		}
	}
}

// Errors do not repeat long input.
func TestPath_ErrorsAreShort(t *testing.T) {
	for _, raw := range []string{
		"file://" + strings.Repeat("é", 1<<16) + "/x",
		strings.Repeat("s", 1<<16) + ":x",
		"file:///" + strings.Repeat("x", 1<<16) + "%00",
	} {
		_, err := ParsePath("path", raw)
		if err == nil || len(err.Message) > 2*maxQuotedBytes || !utf8.ValidString(err.Message) {
			t.Errorf("%.20q returns %v", raw, err)
		}
	}
}

// readByLibrary returns the path that net/url parses from a URI, if it accepts it.
func readByLibrary(uri string) (native string, ok bool) {
	u, err := url.Parse(uri)
	if err != nil || u.Opaque != "" {
		return "", false
	}
	return path.Clean("/" + u.Path), true
}

// FuzzPath: an accepted path means what net/url parses, and what a response calls it
// is accepted as the same path. No encoding bypasses the checks.
func FuzzPath(f *testing.F) {
	for _, seed := range []string{
		"/x/../y//f/", "file:///sp%20ace%2541", "FILE://localhost/%ff%zz%", "file:/\\\n", "http:x", "file://h?q#f", "C:\\x", "/\x00", "file:///%00",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		p, err := ParsePath("path", raw)
		if err != nil {
			if err.Code != -32600 && err.Code != -32602 || len(err.Message) > 2*maxQuotedBytes || utf8.ValidString(raw) && !utf8.ValidString(err.Message) {
				t.Errorf("%q returns %+v", raw, err)
			}
			return
		}
		if !strings.HasPrefix(p.Native, "/") || path.Clean(p.Native) != p.Native || strings.Contains(p.Native, "\x00") {
			t.Errorf("%q is %q", raw, p.Native)
		}
		if p.URI == strings.HasPrefix(raw, "/") {
			t.Errorf("%q is parsed as a URI: %v", raw, p.URI)
		}
		if read, ok := readByLibrary(raw); p.URI && ok && read != p.Native {
			t.Errorf("%q is %q, by net/url %q", raw, p.Native, read)
		}
		encoded := p.Like(p.Native)
		if read, ok := readByLibrary(encoded); p.URI && (!ok || read != p.Native) {
			t.Errorf("%q is formatted as %q, which net/url parses as %q", p.Native, encoded, read)
		}
		if p.URI != strings.HasPrefix(encoded, "file:///") {
			t.Errorf("%q is formatted as %q", raw, encoded)
		}
		if !utf8.ValidString(encoded) {
			t.Errorf("%q is formatted as %q", raw, encoded)
		}
		if !p.URI && !utf8.ValidString(p.Native) {
			return
		}
		if again, err := ParsePath("path", encoded); err != nil || again != p {
			t.Errorf("%q is %+v, formatted as %q, which is %+v (%v)", raw, p, encoded, again, err)
		}
	})
}
