package jsonrpc

import (
	"fmt"
	"reflect"
	"strings"
)

// field is a member of an object that has a place in a struct.
type field struct {
	name     string
	index    int
	decode   decoder
	optional bool // it may be absent
	default_ bool // it may be left out at the end of an array
	nullable bool // it may be null, other than a pointer, which takes null itself
}

func structDecoder(t reflect.Type) decoder {
	fields := fieldsOf(t)
	expected := "struct " + strings.ToUpper(t.Name()[:min(1, len(t.Name()))]) + t.Name()[min(1, len(t.Name())):]
	return func(s *scanner, into reflect.Value) error {
		c, err := s.next("a value")
		switch {
		case err != nil:
			return err
		case c == '{':
			return decodeMembers(s, into, fields)
		case c == '[':
			return decodePositions(s, into, fields, expected)
		}
		return s.wrongType(expected)
	}
}

func fieldsOf(t reflect.Type) []field {
	var fields []field
	for i := range t.NumField() {
		declared := t.Field(i)
		tag, tagged := declared.Tag.Lookup("param")
		if !tagged {
			continue
		}
		options := strings.Split(tag, ",")
		f := field{name: options[0], index: i, decode: decoderOf(declared.Type)}
		f.optional = declared.Type.Kind() == reflect.Pointer
		for _, option := range options[1:] {
			switch option {
			case "optional":
				f.optional, f.default_ = true, true
			case "nullable":
				f.nullable = true
			case "required":
				f.optional = false
			default:
				panic(fmt.Sprintf("jsonrpc: field %s of %v has an unknown option %q", declared.Name, t, option))
			}
		}
		fields = append(fields, f)
	}
	return fields
}

func decodeMembers(s *scanner, into reflect.Value, fields []field) error {
	seen := make([]bool, len(fields))
	err := s.object(0, func(name span) error {
		text := s.content(name)
		for i := range fields {
			if fields[i].name == string(text) {
				seen[i] = true
				return fields[i].read(s, into)
			}
		}
		return s.value(0)
	})
	if err != nil {
		return err
	}
	for i := range fields {
		if !seen[i] && !fields[i].optional {
			return fmt.Errorf("missing field `%s`", fields[i].name)
		}
	}
	return nil
}

func decodePositions(s *scanner, into reflect.Value, fields []field, expected string) error {
	n := 0
	err := s.array(0, func() error {
		n++
		if n > len(fields) {
			return s.value(0)
		}
		return fields[n-1].read(s, into)
	})
	if err != nil {
		return err
	}
	if n > len(fields) || n < len(fields) && !fields[n].default_ {
		return fmt.Errorf("invalid length %d, expected %s with %d elements", n, expected, len(fields))
	}
	return nil
}

func (f *field) read(s *scanner, into reflect.Value) error {
	if f.nullable {
		c, err := s.next("a value")
		if err != nil {
			return err
		}
		if c == 'n' {
			return s.literal("null")
		}
	}
	return f.decode(s, into.Field(f.index))
}
