package jsonrpc

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// text is a string: the content between its quotes, or with the quotes if it has escape
// sequences.
type text struct {
	raw     []byte
	escaped bool
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

// slowText reads a string that has escape sequences or is invalid.
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
			return text{raw: s.data[from-1 : s.pos], escaped: true}
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

// Eight bytes are examined as one word. Subtracting a constant from each byte sets the
// high bit of the ASCII characters below it; the lowest such bit is never the result of a
// borrow.
const (
	each  = 0x0101010101010101
	highs = 0x80 * each
)

// isPlain reports whether text without quotes needs no escapes in a string.
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

// rune reads a character that is not ASCII.
func (s *scanner) rune() {
	_, size := utf8.DecodeRune(s.data[s.pos:])
	if size == 1 {
		s.unexpected("invalid unicode code point: the text is not UTF-8")
	}
	s.pos = min(s.pos+size, len(s.data))
}

// plainASCII returns the length of the prefix of data without quotes, backslashes,
// control characters and bytes that are not ASCII.
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
	r, err := strconv.ParseUint(string(s.data[s.pos:s.pos+4]), 16, 16)
	s.pos += 4
	if err != nil {
		s.failed("invalid escape")
		return -1
	}
	return rune(r)
}

// content returns the text of a string: part of the data, or a copy if it has escape
// sequences.
func (s *scanner) content(t text) []byte {
	if !t.escaped {
		return t.raw
	}
	var content string
	_ = json.Unmarshal(t.raw, &content) // valid: it was scanned
	return []byte(content)
}

// fail records an error, unless there is one, and moves to the end of the data.
func (s *scanner) fail(err error) {
	if s.err == nil {
		s.err = err
	}
	s.pos = len(s.data)
}

// failed records an error in the data before pos.
func (s *scanner) failed(format string, args ...any) { s.failAt(s.pos, format, args) }

// unexpected records an error in the byte at pos.
func (s *scanner) unexpected(format string, args ...any) {
	s.failAt(min(s.pos+1, len(s.data)), format, args)
}

// ended records that the data ends too early.
func (s *scanner) ended(within string) {
	s.pos = len(s.data)
	if within != "" {
		s.failAt(s.pos, "EOF while parsing %s", []any{within})
	}
}

// failAt records an error with its position. Lines are counted from 1 and columns in
// bytes; the column is that of the byte before pos.
func (s *scanner) failAt(pos int, format string, args []any) {
	if s.err == nil {
		read := s.data[:pos]
		line := 1 + bytes.Count(read, []byte("\n"))
		column := pos - 1 - bytes.LastIndexByte(read, '\n')
		s.err = fmt.Errorf("%s at line %d column %d", fmt.Sprintf(format, args...), line, column)
	}
	s.pos = len(s.data)
}

// within prepends a part to the place of the error.
func (s *scanner) within(part string) { s.place = part + s.place }

// missing records that a member is absent.
func (s *scanner) missing(name string) {
	s.fail(fmt.Errorf("missing field `%s`", name))
	s.within("." + name)
}

// wrongType records that the next value has another type than expected.
func (s *scanner) wrongType(expected string) {
	var found string
	switch c := s.next("a value"); {
	case c == '[':
		found = "sequence"
	case c == '{':
		found = "map"
	default:
		found = describe(s.raw(0))
	}
	s.fail(errors.New("invalid type: " + found + ", expected " + expected))
}

// describe describes a scalar in the words of the reference.
func describe(raw []byte) string {
	switch {
	case len(raw) == 0 || raw[0] == 'n':
		return "null"
	case raw[0] == '"':
		return "string " + clip(raw)
	case !isNumber(raw[0]):
		return "boolean `" + clip(raw) + "`"
	case bytes.ContainsAny(raw, ".eE"):
		return "floating point `" + clip(raw) + "`"
	}
	return "integer `" + clip(raw) + "`"
}

// clip shortens text that an error repeats.
func clip(text []byte) string { return Shorten(string(text), 64) }

// Shorten cuts text that is longer than most bytes.
func Shorten(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most] + "…"
}
