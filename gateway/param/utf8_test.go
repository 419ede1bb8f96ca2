package param

import (
	"testing"
	"unicode/utf8"
)

func TestToUTF8_ReplacesInvalidBytes(t *testing.T) {
	const x = "\uFFFD"
	for text, want := range map[string]string{
		"":                        "",
		"plain é 😀":               "plain é 😀",
		"kept " + x:               "kept " + x,
		"bad\xff":                 "bad" + x,
		"\xe9\xe8":                x + x,
		"\x80\xbf":                x + x,
		"\xc0\x80":                x + x,
		"\xf5a":                   x + "a",
		"\xe2\x82":                x,
		"\xe2\x82a":               x + "a",
		"\xe2\x82\xe2\x82\xac":    x + "€",
		"\xe0\x80\x80":            x + x + x,
		"\xed\xa0\x80":            x + x + x,
		"Hello \xf0\x90\x80World": "Hello " + x + "World",
		"\xf0\x80\x80":            x + x + x,
		"\xf4\x90\x80\x80":        x + x + x + x,
		"\xf0\x9f\x98":            x,
		"\xc3(":                   x + "(",
	} {
		if got := ToUTF8(text); got != want || !utf8.ValidString(got) {
			t.Errorf("%q is converted to %q, want %q", text, got, want)
		}
	}
}
