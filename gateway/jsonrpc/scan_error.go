package jsonrpc

import (
	"bytes"
	"errors"
	"fmt"
	"unicode/utf8"
)

// fail keeps what is wrong, if nothing was before, and makes the scanner find
// nothing any more.
func (s *scanner) fail(err error) {
	if s.err == nil {
		s.err = err
	}
	s.pos = len(s.data)
}

// failed says what is wrong with what was read up to pos.
func (s *scanner) failed(format string, args ...any) { s.failAt(s.pos, format, args) }

// unexpected says what is wrong with the byte at pos.
func (s *scanner) unexpected(format string, args ...any) {
	s.failAt(min(s.pos+1, len(s.data)), format, args)
}

// ended says that the data ends too early.
func (s *scanner) ended(within string) {
	s.pos = len(s.data)
	if within != "" {
		s.failAt(s.pos, "EOF while parsing %s", []any{within})
	}
}

// failAt adds where it was: lines are counted from 1, and columns in bytes, so
// that the column of what was read up to pos is that of the last byte.
func (s *scanner) failAt(pos int, format string, args []any) {
	if s.err == nil {
		read := s.data[:pos]
		line := 1 + bytes.Count(read, []byte("\n"))
		column := pos - 1 - bytes.LastIndexByte(read, '\n')
		s.err = fmt.Errorf("%s at line %d column %d", fmt.Sprintf(format, args...), line, column)
	}
	s.pos = len(s.data)
}

// within adds to the place of what is wrong, from the inside out.
func (s *scanner) within(part string) { s.place = part + s.place }

// missing says that a member is absent.
func (s *scanner) missing(name string) {
	s.fail(fmt.Errorf("missing field `%s`", name))
	s.within("." + name)
}

// wrongType says what the value at hand is instead of what was expected.
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

// describe names a value that is neither an array nor an object.
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

// maxQuoted is how many bytes of the peer's text an error repeats.
const maxQuoted = 64

// clip shortens text to what an error repeats of it.
func clip(text []byte) string {
	if len(text) <= maxQuoted {
		return string(text)
	}
	cut := maxQuoted
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return string(text[:cut]) + "…"
}
