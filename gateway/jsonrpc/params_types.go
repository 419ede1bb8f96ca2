package jsonrpc

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"sync"
)

// decoder reads a value at the scanner's place into a variable of its type.
type decoder func(s *scanner, into reflect.Value) error

var decoders sync.Map // reflect.Type to decoder

// decoderOf makes the decoder of a type, once.
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
	case reflect.Float64:
		return decodeFloat
	case reflect.Pointer:
		return pointerDecoder(t)
	case reflect.Slice:
		return sliceDecoder(t)
	case reflect.Map:
		return mapDecoder(t)
	case reflect.Struct:
		return structDecoder(t)
	}
	panic(fmt.Sprintf("jsonrpc: parameters cannot be of type %v", t))
}

// wantText reads a string and returns what it says.
func wantText(s *scanner, expected string) ([]byte, error) {
	c, err := s.next("a value")
	if err != nil {
		return nil, err
	}
	if c != '"' {
		return nil, s.wrongType(expected)
	}
	text, err := s.text()
	if err != nil {
		return nil, err
	}
	return s.content(text), nil
}

func decodeString(s *scanner, into reflect.Value) error {
	text, err := wantText(s, "a string")
	if err == nil {
		into.SetString(string(text))
	}
	return err
}

func decodeText(s *scanner, into reflect.Value) error {
	text, err := wantText(s, "a string")
	if err == nil {
		into.SetBytes(text)
	}
	return err
}

func decodeBase64(s *scanner, into reflect.Value) error {
	text, err := wantText(s, "a string")
	if err != nil {
		return err
	}
	data, err := DecodeBase64(text)
	if err == nil {
		into.SetBytes(data)
	}
	return err
}

func decodeUnmarshaler(s *scanner, into reflect.Value) error {
	text, err := wantText(s, "a string")
	if err != nil {
		return err
	}
	return into.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText(text)
}

func decodeRaw(s *scanner, into reflect.Value) error {
	s.space()
	from := s.pos
	err := s.value(0)
	if err == nil {
		into.SetBytes(s.data[from:s.pos])
	}
	return err
}

func decodeBool(s *scanner, into reflect.Value) error {
	c, err := s.next("a value")
	switch {
	case err != nil:
		return err
	case c == 't':
		into.SetBool(true)
		return s.literal("true")
	case c == 'f':
		into.SetBool(false)
		return s.literal("false")
	}
	return s.wrongType("a boolean")
}

// wantNumber reads a number and returns its digits.
func wantNumber(s *scanner, expected string) (string, error) {
	c, err := s.next("a value")
	if err != nil {
		return "", err
	}
	if c != '-' && (c < '0' || c > '9') {
		return "", s.wrongType(expected)
	}
	number, err := s.number()
	return string(s.data[number.from:number.to]), err
}

func decodeInt(s *scanner, into reflect.Value) error {
	bits := into.Type().Bits()
	expected := fmt.Sprintf("i%d", bits)
	digits, err := wantNumber(s, expected)
	if err != nil {
		return err
	}
	n, err := strconv.ParseInt(digits, 10, bits)
	if err != nil {
		return wrongNumber(digits, expected)
	}
	into.SetInt(n)
	return nil
}

func decodeUint(s *scanner, into reflect.Value) error {
	bits := into.Type().Bits()
	expected := fmt.Sprintf("u%d", bits)
	digits, err := wantNumber(s, expected)
	if err != nil {
		return err
	}
	n, err := strconv.ParseUint(digits, 10, bits)
	if err != nil {
		return wrongNumber(digits, expected)
	}
	into.SetUint(n)
	return nil
}

func decodeFloat(s *scanner, into reflect.Value) error {
	digits, err := wantNumber(s, "f64")
	if err != nil {
		return err
	}
	f, err := strconv.ParseFloat(digits, 64)
	if err != nil {
		return wrongNumber(digits, "f64")
	}
	into.SetFloat(f)
	return nil
}

func pointerDecoder(t reflect.Type) decoder {
	element := decoderOf(t.Elem())
	return func(s *scanner, into reflect.Value) error {
		c, err := s.next("a value")
		switch {
		case err != nil:
			return err
		case c == 'n':
			into.SetZero()
			return s.literal("null")
		}
		made := reflect.New(t.Elem())
		if err := element(s, made.Elem()); err != nil {
			return err
		}
		into.Set(made)
		return nil
	}
}

func sliceDecoder(t reflect.Type) decoder {
	element := decoderOf(t.Elem())
	return func(s *scanner, into reflect.Value) error {
		c, err := s.next("a value")
		if err != nil {
			return err
		}
		if c != '[' {
			return s.wrongType("a sequence")
		}
		list := reflect.MakeSlice(t, 0, 0)
		err = s.array(0, func() error {
			list = reflect.Append(list, reflect.Zero(t.Elem()))
			return element(s, list.Index(list.Len()-1))
		})
		into.Set(list)
		return err
	}
}

func mapDecoder(t reflect.Type) decoder {
	if t.Key().Kind() != reflect.String {
		panic(fmt.Sprintf("jsonrpc: parameters cannot be of type %v", t))
	}
	element := decoderOf(t.Elem())
	return func(s *scanner, into reflect.Value) error {
		c, err := s.next("a value")
		if err != nil {
			return err
		}
		if c != '{' {
			return s.wrongType("a map")
		}
		made := reflect.MakeMap(t)
		err = s.object(0, func(name span) error {
			value := reflect.New(t.Elem()).Elem()
			if err := element(s, value); err != nil {
				return err
			}
			key := reflect.ValueOf(string(s.content(name))).Convert(t.Key())
			made.SetMapIndex(key, value)
			return nil
		})
		into.Set(made)
		return err
	}
}
