package jsonrpc

import (
	"fmt"
	"strings"
)

// wrongType says what the value at the scanner's place is, and what it should be.
func (s *scanner) wrongType(expected string) error {
	from := s.pos
	if err := s.value(0); err != nil {
		return err
	}
	return fmt.Errorf("invalid type: %s, expected %s", describe(s.data[from:s.pos]), expected)
}

// describe names a value that was scanned.
func describe(raw []byte) string {
	switch raw[0] {
	case 'n':
		return "null"
	case 't', 'f':
		return fmt.Sprintf("boolean `%s`", raw)
	case '[':
		return "sequence"
	case '{':
		return "map"
	case '"':
		return "string " + clip(raw)
	}
	if strings.ContainsAny(string(raw), ".eE") {
		return fmt.Sprintf("floating point `%s`", clip(raw))
	}
	return fmt.Sprintf("integer `%s`", clip(raw))
}

// wrongNumber says why a number is not of the expected type.
func wrongNumber(digits, expected string) error {
	if strings.ContainsAny(digits, ".eE") {
		return fmt.Errorf("invalid type: floating point `%s`, expected %s", clip([]byte(digits)), expected)
	}
	return fmt.Errorf("invalid value: integer `%s`, expected %s", clip([]byte(digits)), expected)
}
