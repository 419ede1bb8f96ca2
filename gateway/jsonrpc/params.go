package jsonrpc

import (
	"reflect"
)

// DecodeParams reads parameters into the struct that into points to. Absent
// parameters (nil) are null, which no struct accepts. An array is accepted for
// an object, its elements in the order of the fields.
//
// A field is a member if it has a tag, `param:"name"`, possibly with options:
//
//	optional   the member may be absent; the field keeps what it had
//	nullable   the member may be null; the field keeps what it had
//	required   of a pointer: the member may be null but must be there
//
// A pointer is nil where the member is absent or null. Members without a field
// are ignored, and names are case-sensitive. A field may be a string, a bool, an
// integer (its range is checked), a float64, a struct, a slice, a map with
// strings as keys, a pointer to one of these, [Base64], [Text], a
// [json.RawMessage], which takes any value as it came, or have UnmarshalText for
// a string; the text of its error becomes that of the answer. Text and RawMessage
// may be parts of params.
//
// The error has code [CodeInvalidParams]. DecodeParams panics if into is not a
// pointer to a struct, or has fields of other types.
func DecodeParams(params []byte, into any) *Error {
	if params == nil {
		params = []byte("null")
	}
	if err := decode(params, into); err != nil {
		return &Error{Code: CodeInvalidParams, Message: err.Error()}
	}
	return nil
}

// Text is a parameter that is a string, as bytes that may be part of the params.
type Text []byte

// decode reads a value into what into points to.
func decode(raw []byte, into any) error {
	s := scanner{data: raw}
	v := reflect.ValueOf(into).Elem()
	if err := decoderOf(v.Type())(&s, v); err != nil {
		return err
	}
	return s.end()
}
