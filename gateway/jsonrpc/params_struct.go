package jsonrpc

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// field is a member of an object that has a place in a struct.
type field struct {
	name     string
	index    int // in the struct
	decode   decoder
	optional bool // it may be absent
	preset   bool // it may also be left out at the end of an array
	nullable bool // it may be null, other than a pointer, which takes null itself
	named    bool // it has no place in an array
}

// maxFields is how many members a struct may have.
const maxFields = 64

func structDecoder(t reflect.Type) decoder {
	fields, strict := fieldsOf(t), isStrict(t)
	positions := slices.DeleteFunc(slices.Clone(fields), func(f field) bool { return f.named })
	expected := "struct"
	if name := t.Name(); name != "" {
		expected += " " + strings.ToUpper(name[:1]) + name[1:]
	}
	return func(s *scanner, into reflect.Value) {
		switch s.next("a value") {
		case '{':
			decodeMembers(s, into, fields, strict)
		case '[':
			if strict {
				s.wrongType(expected)
				return
			}
			decodePositions(s, into, positions, expected)
		default:
			s.wrongType(expected)
		}
	}
}

// isStrict reports whether a struct takes only members that it has fields for.
func isStrict(t reflect.Type) bool {
	marker, ok := t.FieldByName("_")
	return ok && marker.Tag.Get("param") == ",strict"
}

func fieldsOf(t reflect.Type) []field {
	var fields []field
	for i := range t.NumField() {
		declared := t.Field(i)
		tag, ok := declared.Tag.Lookup("param")
		if !ok || declared.Name == "_" {
			continue
		}
		options := strings.Split(tag, ",")
		f := field{name: options[0], index: i, decode: decoderOf(declared.Type)}
		f.optional = declared.Type.Kind() == reflect.Pointer
		for _, option := range options[1:] {
			switch option {
			case "optional":
				f.optional, f.preset = true, true
			case "nullable":
				f.nullable = true
			case "named":
				f.named = true
			case "required":
				f.optional = false
			default:
				panic(fmt.Sprintf("jsonrpc: field %s of %v has the unknown option %q", declared.Name, t, option))
			}
		}
		fields = append(fields, f)
	}
	if len(fields) > maxFields {
		panic(fmt.Sprintf("jsonrpc: %v has more than %d members", t, maxFields))
	}
	return fields
}

func decodeMembers(s *scanner, into reflect.Value, fields []field, strict bool) {
	var seen uint64 // a bit for each field
	for object := s.open(0); s.member(&object); {
		i := slices.IndexFunc(fields, func(f field) bool { return f.name == string(object.name) })
		if i < 0 && strict {
			s.fail(unknownField(object.name, fields))
			s.within("." + clip(object.name))
			return
		}
		if i < 0 {
			s.value(0)
			continue
		}
		seen |= 1 << i
		fields[i].read(s, into)
	}
	for i := range fields {
		if s.err == nil && seen&(1<<i) == 0 && !fields[i].optional {
			s.missing(fields[i].name)
		}
	}
}

// unknownField is the error for a member that there is no field for, in the words
// of the reference.
func unknownField(name []byte, fields []field) error {
	said := "unknown field `" + clip(name) + "`, expected one of "
	for i, f := range fields {
		if i > 0 {
			said += ", "
		}
		said += "`" + f.name + "`"
	}
	return errors.New(said)
}

func decodePositions(s *scanner, into reflect.Value, fields []field, expected string) {
	n := 0
	for array := s.open(0); s.element(&array); n++ {
		if n < len(fields) {
			fields[n].read(s, into)
		} else {
			s.value(0)
		}
	}
	if n > len(fields) || n < len(fields) && !fields[n].preset {
		s.fail(fmt.Errorf("invalid length %d, expected %s with %d elements", n, expected, len(fields)))
	}
}

func (f *field) read(s *scanner, into reflect.Value) {
	if f.nullable && s.null() {
		return
	}
	f.decode(s, into.Field(f.index))
	if s.err != nil {
		s.within("." + f.name)
	}
}
