package jsonrpc

import (
	"reflect"
	"strings"
)

// DecodeParams reads parameters into the struct that into points to. Absent
// parameters, nil, are null, which no struct accepts. An array is accepted for
// an object, its elements in the order of the fields.
//
// A field is a member if it has a tag, `param:"name"`, possibly with options:
//
//	optional   the member may be absent; the field keeps what it had
//	nullable   the member may be null; the field keeps what it had
//	required   of a pointer: the member may be null but must be there
//	named      the member has no place in an array
//
// A pointer is nil where the member is absent or null, and where an array has
// null; without the option optional the array must have it. Members without a
// field are ignored, and names are case-sensitive. A struct with the field
//
//	_ struct{} `param:",strict"`
//
// refuses members without a field, and arrays: for parameters that must not be
// understood in part.
//
// A field may be a string, a bool, an integer (its range is checked), a float64,
// a struct, a slice, a map with strings as keys, or a pointer to one of these;
// or [Base64], [Text], or a [json.RawMessage], which takes any value as it came.
// Text and RawMessage may be parts of params. A type with UnmarshalText is a
// string that it judges; the text of its error becomes that of the answer.
//
// The error has the code [CodeInvalidParams] and an [InvalidField] as its data;
// what into has then is undefined.
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
	return &Error{
		Code:    CodeInvalidParams,
		Message: s.err.Error(),
		Data:    InvalidField{Reason: "INVALID_FIELD", Field: strings.TrimPrefix(s.place, ".")},
	}
}

// InvalidField is the data of an error about parameters.
type InvalidField struct {
	// Field is the member, as "argv[1]"; absent if it is all of the parameters.
	Field string `json:"field,omitempty"`
	// Reason is INVALID_FIELD, as in the protobuf contract.
	Reason string `json:"reason"`
}

// Text is a parameter that is a string, as bytes that may be part of the
// parameters: for what is long and read once.
type Text []byte

// decode reads the only value of raw and returns the scanner, which knows what
// was wrong.
func decode(raw []byte, into reflect.Value) *scanner {
	s := newScanner(raw)
	decoderOf(into.Type())(s, into)
	s.end()
	return s
}
