package jsonrpc

import "unicode/utf8"

// AppendString appends text as a JSON string, byte for byte what encoding/json
// writes without HTML escaping: what is not UTF-8 becomes U+FFFD.
func AppendString[T string | []byte](dst []byte, text T) []byte {
	dst = append(dst, '"')
	for rest := []byte(text); ; {
		n := plainASCII(rest)
		dst = append(dst, rest[:n]...)
		if rest = rest[n:]; len(rest) == 0 {
			return append(dst, '"')
		}
		n = 1
		if rest[0] < utf8.RuneSelf {
			dst = appendEscape(dst, rest[0])
		} else {
			dst, n = appendRune(dst, rest)
		}
		rest = rest[n:]
	}
}

// appendEscape appends an ASCII character that does not stand for itself.
func appendEscape(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\b':
		return append(dst, `\b`...)
	case '\f':
		return append(dst, `\f`...)
	case '\n':
		return append(dst, `\n`...)
	case '\r':
		return append(dst, `\r`...)
	case '\t':
		return append(dst, `\t`...)
	}
	const digits = "0123456789abcdef"
	return append(dst, '\\', 'u', '0', '0', digits[c>>4], digits[c&0xf])
}

// appendRune appends the first character of text, which is beyond ASCII, and
// returns its length. The line separators of Unicode are escaped, because
// JavaScript once took them for the end of a string.
func appendRune(dst, text []byte) ([]byte, int) {
	switch r, size := utf8.DecodeRune(text); {
	case r == utf8.RuneError && size == 1:
		return append(dst, `\ufffd`...), 1
	case r == '\u2028':
		return append(dst, `\u2028`...), size
	case r == '\u2029':
		return append(dst, `\u2029`...), size
	default:
		return append(dst, text[:size]...), size
	}
}
