package jsonrpc

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// DecodeParams decodes parameters into the struct that into points to. nil, for absent
// parameters, is null, which no struct accepts. An array is accepted instead of an
// object; its elements are in the order of the fields.
//
// A field is a member if it has a tag, `param:"name"`, possibly with options:
//
//	optional   the member may be absent; the field keeps its value
//	nullable   the member may be null; the field keeps its value
//	named      the member is not an element of an array
//
// A pointer is nil if the member is absent or null; without the option optional, an
// array must have the element. Members without a field are ignored. Names are
// case-sensitive. A struct with the field
//
//	_ struct{} `param:",strict"`
//
// rejects arrays and members without a field, for parameters of which no part may be
// ignored.
//
// A field may be a string, a bool, an integer (its range is checked), a
// struct, a slice, a map with strings as keys, or a pointer to one of these;
// or [Base64], [Text], or a [json.RawMessage], which takes any value.
// Text and RawMessage may alias params. A type with UnmarshalText is decoded
// from a string; the text of its error is the text of the result, as is its code if it
// is an [Error]. The fields of an embedded struct without a tag are fields of the
// outer struct.
//
// The error has the code [CodeInvalidParams], unless UnmarshalText set another one,
// and an [InvalidField] as its data; into is then undefined.
// DecodeParams panics if into is not a pointer to a struct, or the struct has
// fields of other types. It may be called concurrently.
func DecodeParams(params []byte, into any) *Error {
	if params == nil {
		params = []byte("null")
	}
	v := reflect.ValueOf(into).Elem()
	if v.Kind() != reflect.Struct {
		panic("jsonrpc: parameters are decoded into a struct, not into a " + v.Type().String())
	}
	s := decode(params, v)
	if s.err == nil {
		return nil
	}
	failure := &Error{
		Code:    CodeInvalidParams,
		Message: s.err.Error(),
		Data:    InvalidField{Reason: "INVALID_FIELD", Field: strings.TrimPrefix(s.place, ".")},
	}
	if own, ok := s.err.(*Error); ok {
		failure.Code = own.Code
	}
	return failure
}

// InvalidField is the data of an error about parameters.
type InvalidField struct {
	// Field is the member, as in "argv[1]"; absent if the error concerns all parameters.
	Field string `json:"field,omitempty"`
	// Reason is INVALID_FIELD, as in the protobuf contract.
	Reason string `json:"reason"`
}

// Text is a parameter that is a string, as bytes that may alias the parameters: for
// long strings that are read once.
type Text []byte

// decode decodes the only value of raw and returns the scanner, which has the error.
func decode(raw []byte, into reflect.Value) *scanner {
	s := newScanner(raw)
	decoderOf(into.Type())(s, into)
	s.end()
	return s
}

// field is a struct field for a member of an object.
type field struct {
	name     string
	index    []int // in the struct, as for [reflect.Value.FieldByIndex]
	decode   decoder
	optional bool // it may be absent
	preset   bool // it may also be left out at the end of an array
	nullable bool // it may be null, although it is no pointer
	named    bool // it is not an element of an array
}

// maxFields is the largest number of members of a struct.
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

// isStrict reports whether members without a field are rejected.
func isStrict(t reflect.Type) bool {
	marker, ok := t.FieldByName("_")
	return ok && marker.Tag.Get("param") == ",strict"
}

func fieldsOf(t reflect.Type) []field {
	var fields []field
	for i := range t.NumField() {
		declared := t.Field(i)
		tag, ok := declared.Tag.Lookup("param")
		if !ok && declared.Anonymous && declared.Type.Kind() == reflect.Struct {
			for _, inner := range fieldsOf(declared.Type) {
				inner.index = slices.Concat(declared.Index, inner.index)
				fields = append(fields, inner)
			}
		}
		if !ok || declared.Name == "_" {
			continue
		}
		options := strings.Split(tag, ",")
		f := field{name: options[0], index: declared.Index, decode: decoderOf(declared.Type)}
		f.optional = declared.Type.Kind() == reflect.Pointer
		for _, option := range options[1:] {
			switch option {
			case "optional":
				f.optional, f.preset = true, true
			case "nullable":
				f.nullable = true
			case "named":
				f.named = true
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

// unknownField is the error for a member without a field, with the text of the
// reference.
func unknownField(name []byte, fields []field) error {
	message := "unknown field `" + clip(name) + "`, expected one of "
	for i, f := range fields {
		if i > 0 {
			message += ", "
		}
		message += "`" + f.name + "`"
	}
	return errors.New(message)
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
	f.decode(s, into.FieldByIndex(f.index))
	if s.err != nil {
		s.within("." + f.name)
	}
}
