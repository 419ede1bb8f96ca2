package jsonrpc

import (
	"bytes"
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"strconv"
)

// wantText reads a string; ok is false if the value at hand is none.
func (s *scanner) wantText() (said []byte, ok bool) {
	if s.next("a value") != '"' {
		s.wrongType("a string")
		return nil, false
	}
	said = s.content(s.text())
	return said, s.err == nil
}

func decodeString(s *scanner, into reflect.Value) {
	if said, ok := s.wantText(); ok {
		into.SetString(string(said))
	}
}

func decodeText(s *scanner, into reflect.Value) {
	if said, ok := s.wantText(); ok {
		into.SetBytes(said)
	}
}

func decodeUnmarshaler(s *scanner, into reflect.Value) {
	said, ok := s.wantText()
	if !ok {
		return
	}
	if err := into.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText(said); err != nil {
		s.fail(err)
	}
}

// decodeBase64 looks at the text once if nothing is wrong with it, because all
// that can stand in a string of base64 stands for itself.
func decodeBase64(s *scanner, into reflect.Value) {
	if s.next("a value") == '"' {
		rest := s.data[s.pos+1:]
		if end := bytes.IndexByte(rest, '"'); end >= 0 {
			if data, err := DecodeBase64(rest[:end]); err == nil {
				s.pos += end + 2
				into.SetBytes(data)
				return
			}
		}
	}
	said, ok := s.wantText()
	if !ok {
		return
	}
	data, err := DecodeBase64(said)
	if err != nil {
		s.fail(err)
	}
	into.SetBytes(data)
}

func decodeRaw(s *scanner, into reflect.Value) { into.SetBytes(s.raw(0)) }

func decodeBool(s *scanner, into reflect.Value) {
	switch s.next("a value") {
	case 't':
		s.literal("true")
		into.SetBool(true)
	case 'f':
		s.literal("false")
		into.SetBool(false)
	default:
		s.wrongType("a boolean")
	}
}

func decodeInt(s *scanner, into reflect.Value) {
	bits := into.Type().Bits()
	decodeNumber(s, "i", bits, into.SetInt, func(digits string) (int64, error) {
		return strconv.ParseInt(digits, 10, bits)
	})
}

func decodeUint(s *scanner, into reflect.Value) {
	bits := into.Type().Bits()
	decodeNumber(s, "u", bits, into.SetUint, func(digits string) (uint64, error) {
		return strconv.ParseUint(digits, 10, bits)
	})
}

func decodeFloat(s *scanner, into reflect.Value) {
	decodeNumber(s, "f", 64, into.SetFloat, func(digits string) (float64, error) {
		return strconv.ParseFloat(digits, 64)
	})
}

func decodeNumber[N any](s *scanner, sort string, bits int, set func(N), parse func(string) (N, error)) {
	if !isNumber(s.next("a value")) {
		s.wrongType(fmt.Sprint(sort, bits))
		return
	}
	digits := s.number()
	n, err := parse(string(digits))
	switch {
	case err == nil:
		set(n)
	case bytes.ContainsAny(digits, ".eE"):
		s.fail(fmt.Errorf("invalid type: %s, expected %s%d", describe(digits), sort, bits))
	default:
		s.fail(fmt.Errorf("invalid value: %s, expected %s%d", describe(digits), sort, bits))
	}
}

// UnknownVariant is the error for a text that is none of those expected, in the
// words of the reference.
func UnknownVariant(text string, expected ...string) error {
	said := "unknown variant `" + clip([]byte(text)) + "`, expected "
	switch len(expected) {
	case 1:
		return errors.New(said + "`" + expected[0] + "`")
	case 2:
		return errors.New(said + "`" + expected[0] + "` or `" + expected[1] + "`")
	}
	said += "one of "
	for i, variant := range expected {
		if i > 0 {
			said += ", "
		}
		said += "`" + variant + "`"
	}
	return errors.New(said)
}
