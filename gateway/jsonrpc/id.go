package jsonrpc

import "strconv"

// ID is what a request and its response have in common: a string or an integer
// that the caller chose. IDs are comparable. The zero value is the integer 0.
type ID struct {
	text   string
	isText bool
	number int64
}

// NoID answers a message whose id is unknown.
var NoID = NumberID(-1)

// NumberID returns an integer as an id.
func NumberID(n int64) ID { return ID{number: n} }

// TextID returns a string as an id. It must be valid UTF-8.
func TextID(text string) ID { return ID{text: text, isText: true} }

// Number returns the integer, and false if the id is a string.
func (id ID) Number() (n int64, ok bool) { return id.number, !id.isText }

// Append appends the id as JSON.
func (id ID) Append(dst []byte) []byte {
	if id.isText {
		return AppendString(dst, id.text)
	}
	return strconv.AppendInt(dst, id.number, 10)
}

// String returns the id as JSON.
func (id ID) String() string { return string(id.Append(nil)) }
