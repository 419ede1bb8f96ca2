package jsonrpc

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

// text reads a string and returns what is between its quotes.
func (s *scanner) text() (span, error) {
	s.pos++
	content := span{from: s.pos}
	for {
		s.pos += plain(s.data[s.pos:])
		if s.pos == len(s.data) {
			return span{}, s.endWithin("a string")
		}
		switch c := s.data[s.pos]; {
		case c == '"':
			content.to = s.pos
			s.pos++
			return content, nil
		case c == '\\':
			content.escaped = true
			if err := s.escape(); err != nil {
				return span{}, err
			}
		case c < 0x20:
			return span{}, s.unexpected("control character (\\u0000-\\u001F) found while parsing a string")
		default:
			_, size := utf8.DecodeRune(s.data[s.pos:])
			if size == 1 {
				return span{}, s.unexpected("invalid unicode code point: the text is not UTF-8")
			}
			s.pos += size
		}
	}
}

// plain returns how many bytes from the start of data are neither a quote nor a
// backslash nor a control character nor beyond ASCII. It looks at eight bytes at
// a time: subtracting sets the high bit of a byte that was less, and the lowest
// such bit is never due to a borrow.
func plain(data []byte) int {
	const (
		each  = 0x0101010101010101
		highs = 0x80 * each
	)
	i := 0
	for ; i+8 <= len(data); i += 8 {
		word := binary.LittleEndian.Uint64(data[i:])
		quote := word ^ '"'*each
		slash := word ^ '\\'*each
		special := ((quote-each)&^quote | (slash-each)&^slash | (word-0x20*each)&^word | word) & highs
		if special != 0 {
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
func (s *scanner) escape() error {
	s.pos++
	if s.pos == len(s.data) {
		return s.endWithin("a string")
	}
	s.pos++
	switch s.data[s.pos-1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return nil
	case 'u':
	default:
		return s.failed("invalid escape")
	}
	first, err := s.hex()
	if err != nil || !utf16.IsSurrogate(first) {
		return err
	}
	if s.pos+2 > len(s.data) {
		s.pos = len(s.data)
		return s.endWithin("a string")
	}
	if s.data[s.pos] != '\\' || s.data[s.pos+1] != 'u' {
		return s.unexpected("unexpected end of hex escape")
	}
	s.pos += 2
	second, err := s.hex()
	if err != nil {
		return err
	}
	if utf16.DecodeRune(first, second) == utf8.RuneError {
		return s.failed("lone leading surrogate in hex escape")
	}
	return nil
}

// hex reads the four digits of an escape sequence.
func (s *scanner) hex() (rune, error) {
	if s.pos+4 > len(s.data) {
		s.pos = len(s.data)
		return 0, s.endWithin("a string")
	}
	r := hexRune(s.data[s.pos:])
	s.pos += 4
	if r < 0 {
		return 0, s.failed("invalid escape")
	}
	return r, nil
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

// content returns the text of a string: part of the data, or a copy if it has
// escape sequences.
func (s *scanner) content(text span) []byte {
	raw := s.data[text.from:text.to]
	if !text.escaped {
		return raw
	}
	return unescape(raw)
}

// unescape replaces the escape sequences of a string that was scanned.
func unescape(raw []byte) []byte {
	text := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' {
			text = append(text, raw[i])
			continue
		}
		i++
		switch raw[i] {
		case 'b':
			text = append(text, '\b')
		case 'f':
			text = append(text, '\f')
		case 'n':
			text = append(text, '\n')
		case 'r':
			text = append(text, '\r')
		case 't':
			text = append(text, '\t')
		case 'u':
			r := hexRune(raw[i+1:])
			i += 4
			if utf16.IsSurrogate(r) {
				r = utf16.DecodeRune(r, hexRune(raw[i+3:]))
				i += 6
			}
			text = utf8.AppendRune(text, r)
		default:
			text = append(text, raw[i])
		}
	}
	return text
}
