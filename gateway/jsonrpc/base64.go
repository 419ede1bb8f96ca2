package jsonrpc

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/emmansun/base64" // as the standard library's, with SIMD instructions
)

var strictBase64 = base64.StdEncoding.Strict()

// Base64 is a parameter that is a string of standard base64 with padding, and
// is decoded strictly: no other alphabet, no line breaks, no bits that say
// nothing. The bytes are the receiver's own.
type Base64 []byte

// AppendBase64 appends data as a JSON string of standard base64 with padding.
func AppendBase64(dst, data []byte) []byte {
	return append(AppendBase64Text(append(dst, '"'), data), '"')
}

// AppendBase64Text is AppendBase64 without the quotation marks, for a string that
// is made of several pieces: all but the last one are of whole groups of three
// bytes.
func AppendBase64Text(dst, data []byte) []byte {
	return base64.StdEncoding.AppendEncode(dst, data)
}

// DecodeBase64 decodes standard base64 with padding, strictly, into new memory.
// Its errors are those of the reference: "Invalid symbol 42, offset 0.",
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

// padding returns how many signs of padding end text.
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

// base64Mistake says what is wrong with text that cannot be decoded.
func base64Mistake(text []byte) error {
	symbols := 0
	for symbols < len(text) && isBase64(text[symbols]) {
		symbols++
	}
	last := len(text) - 1
	padding := bytes.Count(text[symbols:], []byte("="))
	switch {
	case last >= 0 && last%4 == 0 && text[last] != '=' && !isBase64(text[last]):
		return wrongSymbol(text, last) // most likely a line break behind it all
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

// base64Error is worded as the reference words it.
type base64Error string

func (e base64Error) Error() string { return string(e) }
