package jsonrpc

import (
	"bytes"
	"fmt"
	"unicode/utf8"
)

// failed says what is wrong with what was read up to pos.
func (s *scanner) failed(format string, args ...any) error {
	return s.errorAt(s.pos, fmt.Sprintf(format, args...))
}

// unexpected says what is wrong with the byte at pos.
func (s *scanner) unexpected(format string, args ...any) error {
	return s.errorAt(min(s.pos+1, len(s.data)), fmt.Sprintf(format, args...))
}

func (s *scanner) endWithin(what string) error {
	return s.failed("EOF while parsing %s", what)
}

// errorAt counts lines from 1 and columns in bytes: the column of what was read
// up to pos is that of the last byte, as the reference has it.
func (s *scanner) errorAt(pos int, text string) error {
	read := s.data[:pos]
	line := 1 + bytes.Count(read, []byte("\n"))
	column := pos - 1 - bytes.LastIndexByte(read, '\n')
	return fmt.Errorf("%s at line %d column %d", text, line, column)
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
