package jsonrpc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/emmansun/base64" // as the standard library's, with SIMD instructions
)

// AppendResult appends a response, {"id":…,"result":…}. encoding/json encodes the result,
// without HTML escaping. If that fails, the response has an internal error.
func AppendResult(dst []byte, id ID, result any) []byte {
	before := len(dst)
	dst = append(dst, `{"id":`...)
	dst = id.Append(dst)
	dst = append(dst, `,"result":`...)
	dst, err := appendJSON(dst, result)
	if err != nil {
		return AppendError(dst[:before], id, Errorf(CodeInternal, "the result cannot be encoded: %v", err))
	}
	return append(dst, '}')
}

// AppendError appends a response with an error, {"error":…,"id":…}. Data that
// cannot be encoded is left out.
func AppendError(dst []byte, id ID, err *Error) []byte {
	dst = append(dst, `{"error":`...)
	encoded, failed := appendJSON(dst, err)
	if failed != nil {
		encoded, _ = appendJSON(dst, &Error{Code: err.Code, Message: err.Message})
	}
	return append(id.Append(append(encoded, `,"id":`...)), '}')
}

// AppendRequest appends {"id":…,"method":…,"params":…,"trace":…}, with parameters as in
// AppendNotification. A trace without a parent is left out.
func AppendRequest(dst []byte, id ID, method string, params any, trace Trace) []byte {
	dst = append(dst, `{"id":`...)
	dst = id.Append(dst)
	dst = append(dst, ',')
	dst = appendCall(dst, method, params)
	if trace.Parent == "" {
		return dst
	}
	dst = append(dst[:len(dst)-1], `,"trace":{"traceparent":`...)
	dst = AppendString(dst, trace.Parent)
	if trace.State != "" {
		dst = append(dst, `,"tracestate":`...)
		dst = AppendString(dst, trace.State)
	}
	return append(dst, `}}`...)
}

// AppendNotification appends {"method":…,"params":…}, without params if they are nil. It
// panics if encoding/json cannot encode them, which is an error in their type.
func AppendNotification(dst []byte, method string, params any) []byte {
	return appendCall(append(dst, '{'), method, params)
}

func appendCall(dst []byte, method string, params any) []byte {
	dst = append(dst, `"method":`...)
	dst = AppendString(dst, method)
	if params != nil {
		dst = append(dst, `,"params":`...)
		var err error
		if dst, err = appendJSON(dst, params); err != nil {
			panic(fmt.Sprintf("jsonrpc: parameters of %s: %v", method, err))
		}
	}
	return append(dst, '}')
}

func appendJSON(dst []byte, value any) ([]byte, error) {
	buffer := bytes.NewBuffer(dst)
	encoder := json.NewEncoder(buffer)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return dst, err
	}
	return bytes.TrimSuffix(buffer.Bytes(), []byte("\n")), nil
}

// AppendString appends text as a JSON string, byte for byte as encoding/json without HTML
// escaping: what is not UTF-8 becomes U+FFFD.
func AppendString[T string | []byte](dst []byte, text T) []byte {
	if plainASCII([]byte(text)) == len(text) {
		return append(append(append(dst, '"'), text...), '"')
	}
	dst, _ = appendJSON(dst, string(text)) // a string can be encoded
	return dst
}

var strictBase64 = base64.StdEncoding.Strict()

// Base64 is a parameter that is a string of standard base64 with padding. It is decoded
// strictly: no other alphabet, no line breaks, no unused bits. It does not alias the
// parameters.
type Base64 []byte

// AppendBase64 appends data as a JSON string of standard base64 with padding.
func AppendBase64(dst, data []byte) []byte {
	return append(AppendBase64Text(append(dst, '"'), data), '"')
}

// AppendBase64Text is AppendBase64 without the quotes, for a string in several pieces.
// The lengths of all but the last must be multiples of three.
func AppendBase64Text(dst, data []byte) []byte {
	return base64.StdEncoding.AppendEncode(dst, data)
}

// DecodeBase64 decodes standard base64 with padding, strictly, into new memory.
// Its errors have the texts of the reference: "Invalid symbol 42, offset 0.",
// "Invalid padding", "Invalid last symbol 108, offset 2.".
func DecodeBase64(text []byte) ([]byte, error) {
	if len(text)%4 == 0 {
		data := make([]byte, base64.StdEncoding.DecodedLen(len(text)))
		n, err := strictBase64.Decode(data, text)
		// Line breaks are skipped, so that fewer bytes come out.
		if err == nil && n == len(data)-padding(text) {
			return data[:n], nil
		}
	}
	return nil, base64Mistake(text)
}

// padding returns the length of the padding of text.
func padding(text []byte) int {
	switch n := len(text); {
	case n > 1 && text[n-2] == '=':
		return 2
	case n > 0 && text[n-1] == '=':
		return 1
	}
	return 0
}

const base64Alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

// base64Mistake returns the error of text that cannot be decoded.
func base64Mistake(text []byte) error {
	symbols := 0
	for symbols < len(text) && isBase64(text[symbols]) {
		symbols++
	}
	last := len(text) - 1
	padding := bytes.Count(text[symbols:], []byte("="))
	switch {
	case last >= 0 && last%4 == 0 && text[last] != '=' && !isBase64(text[last]):
		return wrongSymbol(text, last) // probably a line break at the end
	case symbols == len(text):
		return base64Error("Invalid padding")
	case text[symbols] != '=', padding < len(text)-symbols, symbols%4 < 2, symbols%4+padding > 4:
		return wrongSymbol(text, symbols)
	case symbols%4+padding < 4:
		return base64Error("Invalid padding")
	}
	return base64Error(fmt.Sprintf("Invalid last symbol %d, offset %d.", text[symbols-1], symbols-1))
}

func isBase64(c byte) bool { return strings.IndexByte(base64Alphabet, c) >= 0 }

func wrongSymbol(text []byte, offset int) error {
	return base64Error(fmt.Sprintf("Invalid symbol %d, offset %d.", text[offset], offset))
}

// base64Error is an error with the text of the reference.
type base64Error string

func (e base64Error) Error() string { return string(e) }
