package param

import (
	"strings"
	"unicode/utf8"
)

// ToUTF8 replaces invalid UTF-8 by U+FFFD, one for each maximal prefix of a character
// and each other invalid byte. The reference and browsers do the same, so clients see
// the names that they know.
func ToUTF8(text string) string {
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

// brokenOff returns the length of the maximal prefix of a character at the start of
// text, which is not a whole character; at least 1.
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
