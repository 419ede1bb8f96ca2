package gateway

import (
	"strings"
	"unicode/utf8"
)

// lossy returns text with U+FFFD in the place of what is not UTF-8, one for each
// beginning of a character that is broken off, or byte that begins none: so do
// the reference and browsers, so that clients see the names that they know.
func lossy(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	var whole strings.Builder
	for len(text) > 0 {
		r, n := utf8.DecodeRuneInString(text)
		if r == utf8.RuneError && n == 1 {
			n = brokenOff(text)
		}
		whole.WriteRune(r)
		text = text[n:]
	}
	return whole.String()
}

// brokenOff returns how many bytes at the start of text, which begins with no
// whole character, could be of one: at least 1.
func brokenOff(text string) int {
	lead, n := text[0], 1
	low, high := byte(0x80), byte(0xbf) // of the second byte
	switch {
	case lead < 0xc2 || lead > 0xf4:
		return n
	case lead == 0xe0:
		low = 0xa0
	case lead == 0xed:
		high = 0x9f
	case lead == 0xf0:
		low = 0x90
	case lead == 0xf4:
		high = 0x8f
	}
	for n < len(text) && low <= text[n] && text[n] <= high {
		low, high = 0x80, 0xbf
		n++
	}
	return n
}
