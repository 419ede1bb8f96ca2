package jsonrpc

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"sync"
)

// decoder reads the value at hand into a variable of its type.
type decoder func(s *scanner, into reflect.Value)

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

// null reads the value at hand if it is null.
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
