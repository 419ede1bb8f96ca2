package jsonrpc

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"sync"
)

// decoder decodes the next value into a variable of its type.
type decoder func(s *scanner, into reflect.Value)

var decoders sync.Map // reflect.Type to decoder

// decoderOf returns the decoder of a type, from the cache if it is known.
func decoderOf(t reflect.Type) decoder {
	if known, ok := decoders.Load(t); ok {
		return known.(decoder)
	}
	made := makeDecoder(t)
	decoders.Store(t, made)
	return made
}

func makeDecoder(t reflect.Type) decoder {
	switch {
	case t == reflect.TypeFor[Base64]():
		return decodeBase64
	case t == reflect.TypeFor[Text]():
		return decodeText
	case t == reflect.TypeFor[json.RawMessage]():
		return decodeRaw
	case reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()):
		return decodeUnmarshaler
	}
	switch t.Kind() {
	case reflect.String:
		return decodeString
	case reflect.Bool:
		return decodeBool
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return decodeInt
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return decodeUint
	case reflect.Pointer:
		return pointerDecoder(t)
	case reflect.Slice:
		return sliceDecoder(t)
	case reflect.Map:
		return mapDecoder(t)
	case reflect.Struct:
		return structDecoder(t)
	}
	panic(fmt.Sprintf("jsonrpc: a parameter cannot be of type %v", t))
}

func pointerDecoder(t reflect.Type) decoder {
	element := decoderOf(t.Elem())
	return func(s *scanner, into reflect.Value) {
		if s.null() {
			into.SetZero()
			return
		}
		made := reflect.New(t.Elem())
		element(s, made.Elem())
		into.Set(made)
	}
}

// null consumes the next value if it is null.
func (s *scanner) null() bool {
	if s.next("a value") != 'n' {
		return false
	}
	s.literal("null")
	return true
}

func sliceDecoder(t reflect.Type) decoder {
	element := decoderOf(t.Elem())
	return func(s *scanner, into reflect.Value) {
		if s.next("a value") != '[' {
			s.wrongType("a sequence")
			return
		}
		list := reflect.MakeSlice(t, 0, 0)
		for array := s.open(0); s.element(&array); {
			list = reflect.Append(list, reflect.Zero(t.Elem()))
			element(s, list.Index(list.Len()-1))
			if s.err != nil {
				s.within(fmt.Sprintf("[%d]", list.Len()-1))
			}
		}
		into.Set(list)
	}
}

func mapDecoder(t reflect.Type) decoder {
	if t.Key().Kind() != reflect.String {
		panic(fmt.Sprintf("jsonrpc: a parameter cannot be of type %v: keys are strings", t))
	}
	element := decoderOf(t.Elem())
	return func(s *scanner, into reflect.Value) {
		if s.next("a value") != '{' {
			s.wrongType("a map")
			return
		}
		made := reflect.MakeMap(t)
		for object := s.open(0); s.member(&object); {
			key := reflect.ValueOf(string(object.name)).Convert(t.Key())
			value := reflect.New(t.Elem()).Elem()
			element(s, value)
			made.SetMapIndex(key, value)
			if s.err != nil {
				s.within("." + clip(object.name))
			}
		}
		into.Set(made)
	}
}

// wantText reads a string; ok is false for any other value.
func (s *scanner) wantText() (content []byte, ok bool) {
	if s.next("a value") != '"' {
		s.wrongType("a string")
		return nil, false
	}
	content = s.content(s.text())
	return content, s.err == nil
}

func decodeString(s *scanner, into reflect.Value) {
	if content, ok := s.wantText(); ok {
		into.SetString(string(content))
	}
}

func decodeText(s *scanner, into reflect.Value) {
	if content, ok := s.wantText(); ok {
		into.SetBytes(content)
	}
}

func decodeUnmarshaler(s *scanner, into reflect.Value) {
	content, ok := s.wantText()
	if !ok {
		return
	}
	if err := into.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText(content); err != nil {
		s.fail(err)
	}
}

// decodeBase64 reads valid text once: base64 has no characters that JSON escapes.
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
	content, ok := s.wantText()
	if !ok {
		return
	}
	data, err := DecodeBase64(content)
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

// UnknownVariant is the error for a text that is none of expected, with the text of the
// reference.
func UnknownVariant(text string, expected ...string) error {
	message := "unknown variant `" + clip([]byte(text)) + "`, expected "
	switch len(expected) {
	case 1:
		return errors.New(message + "`" + expected[0] + "`")
	case 2:
		return errors.New(message + "`" + expected[0] + "` or `" + expected[1] + "`")
	}
	message += "one of "
	for i, variant := range expected {
		if i > 0 {
			message += ", "
		}
		message += "`" + variant + "`"
	}
	return errors.New(message)
}
