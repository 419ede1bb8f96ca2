package jsonrpc

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

// text is what is between the quotes of a string.
type text struct {
	raw     []byte
	escaped bool // it has escape sequences
}

// text reads a string.
func (s *scanner) text() text {
	s.pos++
	rest := s.data[s.pos:]
	if end := bytes.IndexByte(rest, '"'); end >= 0 && isPlain(rest[:end]) {
		s.pos += end + 1
		return text{raw: rest[:end:end]}
	}
	return s.slowText()
}

// slowText reads a string that has escape sequences or something wrong in it.
func (s *scanner) slowText() text {
	from := s.pos
	for s.err == nil {
		s.pos += plainASCII(s.data[s.pos:])
		if s.pos == len(s.data) {
			s.ended("a string")
			break
		}
		switch c := s.data[s.pos]; {
		case c == '"':
			s.pos++
			return text{raw: s.data[from : s.pos-1 : s.pos-1], escaped: true}
		case c == '\\':
			s.escape()
		case c < 0x20:
			s.unexpected("control character (\\u0000-\\u001F) found while parsing a string")
		default:
			s.rune()
		}
	}
	return text{}
}

// Eight bytes are looked at in one word. Subtracting the same from each sets the
// high bit of those ASCII characters that were less; the lowest such bit is
// never due to a borrow.
const (
	each  = 0x0101010101010101
	highs = 0x80 * each
)

// isPlain reports whether text without quotes may stand in a string as it is.
func isPlain(text []byte) bool {
	if bytes.IndexByte(text, '\\') >= 0 || !utf8.Valid(text) {
		return false
	}
	i := 0
	for ; i+32 <= len(text); i += 32 {
		part := text[i : i+32 : i+32]
		a, b := binary.LittleEndian.Uint64(part), binary.LittleEndian.Uint64(part[8:])
		c, d := binary.LittleEndian.Uint64(part[16:]), binary.LittleEndian.Uint64(part[24:])
		if ((a-0x20*each)&^a|(b-0x20*each)&^b|(c-0x20*each)&^c|(d-0x20*each)&^d)&highs != 0 {
			return false
		}
	}
	for _, c := range text[i:] {
		if c < 0x20 {
			return false
		}
	}
	return true
}

// rune reads a character beyond ASCII.
func (s *scanner) rune() {
	_, size := utf8.DecodeRune(s.data[s.pos:])
	if size == 1 {
		s.unexpected("invalid unicode code point: the text is not UTF-8")
	}
	s.pos = min(s.pos+size, len(s.data))
}

// plainASCII returns how many bytes from the start of data are neither a quote
// nor a backslash nor a control character nor beyond ASCII.
func plainASCII(data []byte) int {
	i := 0
	for ; i+8 <= len(data); i += 8 {
		word := binary.LittleEndian.Uint64(data[i:])
		quote, slash := word^'"'*each, word^'\\'*each
		if special := ((quote - each) | (slash - each) | (word - 0x20*each) | word) & highs; special != 0 {
			return i + bits.TrailingZeros64(special)/8
		}
	}
	for ; i < len(data); i++ {
		if c := data[i]; c == '"' || c == '\\' || c < 0x20 || c >= utf8.RuneSelf {
			break
		}
	}
	return i
}

// escape reads an escape sequence, both halves of a surrogate pair.
func (s *scanner) escape() {
	if s.pos+1 == len(s.data) {
		s.ended("a string")
		return
	}
	s.pos += 2
	switch s.data[s.pos-1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
	case 'u':
		first := s.hex()
		if s.err != nil || !utf16.IsSurrogate(first) {
			return
		}
		if !bytes.HasPrefix(s.data[s.pos:], []byte(`\u`)) {
			s.unexpected("unexpected end of hex escape")
			return
		}
		s.pos += 2
		second := s.hex()
		if utf16.DecodeRune(first, second) == utf8.RuneError {
			s.failed("lone leading surrogate in hex escape")
		}
	default:
		s.failed("invalid escape")
	}
}

// hex reads the four digits of an escape sequence.
func (s *scanner) hex() rune {
	if s.pos+4 > len(s.data) {
		s.ended("a string")
		return -1
	}
	r := hexRune(s.data[s.pos:])
	s.pos += 4
	if r < 0 {
		s.failed("invalid escape")
	}
	return r
}

// hexRune returns what four hexadecimal digits say, or -1.
func hexRune(digits []byte) rune {
	var r rune
	for _, c := range digits[:4] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}

// content returns what a string says: part of the data, or a copy if it has
// escape sequences.
func (s *scanner) content(t text) []byte {
	if !t.escaped {
		return t.raw
	}
	return unescape(t.raw)
}

// unescape replaces the escape sequences of a string that was scanned.
func unescape(raw []byte) []byte {
	said := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' {
			said = append(said, raw[i])
			continue
		}
		i++
		switch raw[i] {
		case 'b':
			said = append(said, '\b')
		case 'f':
			said = append(said, '\f')
		case 'n':
			said = append(said, '\n')
		case 'r':
			said = append(said, '\r')
		case 't':
			said = append(said, '\t')
		case 'u':
			r := hexRune(raw[i+1:])
			i += 4
			if utf16.IsSurrogate(r) {
				r = utf16.DecodeRune(r, hexRune(raw[i+3:]))
				i += 6
			}
			said = utf8.AppendRune(said, r)
		default:
			said = append(said, raw[i])
		}
	}
	return said
}
