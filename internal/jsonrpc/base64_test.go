package jsonrpc

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"
)

// The first error of each kind is a recording of the reference.
func TestDecodeBase64_Invalid_ReportsSymbolAndOffset(t *testing.T) {
	for text, want := range map[string]string{
		"***":            "Invalid symbol 42, offset 0.",
		"aGk":            "Invalid padding",
		"aGk=\n":         "Invalid symbol 10, offset 4.",
		"aGk==":          "Invalid symbol 61, offset 3.",
		"-_8=":           "Invalid symbol 45, offset 0.",
		"aGl=":           "Invalid last symbol 108, offset 2.",
		"a":              "Invalid padding",
		"aG":             "Invalid padding",
		"aG=":            "Invalid padding",
		"a===":           "Invalid symbol 61, offset 1.",
		"====":           "Invalid symbol 61, offset 0.",
		"=":              "Invalid symbol 61, offset 0.",
		"aH==":           "Invalid last symbol 72, offset 1.",
		"aGk=aGk=":       "Invalid symbol 61, offset 3.",
		"aGkh====":       "Invalid symbol 61, offset 4.",
		"a\nGk=":         "Invalid symbol 10, offset 1.",
		"a\n\n\n\nGk=":   "Invalid symbol 10, offset 1.",
		"\r\n\r\n":       "Invalid symbol 13, offset 0.",
		"aGkh\xc3\xa9aa": "Invalid symbol 195, offset 4.",
		"aGk\x00":        "Invalid symbol 0, offset 3.",
		strings.Repeat("A", 100) + "?" + strings.Repeat("A", 99): "Invalid symbol 63, offset 100.",
	} {
		if data, err := DecodeBase64([]byte(text)); err == nil || err.Error() != want {
			t.Errorf("%q: %q, %v, want %s", text, data, err, want)
		}
	}
}

func TestBase64_AllLengths(t *testing.T) {
	var data []byte
	for range 300 {
		want := base64.StdEncoding.EncodeToString(data)
		if got := string(AppendBase64(nil, data)); got != `"`+want+`"` {
			t.Fatalf("%d bytes: %s, want %s", len(data), got, want)
		}
		if got, err := DecodeBase64([]byte(want)); err != nil || !bytes.Equal(got, data) {
			t.Fatalf("%s: %v, %v", want, got, err)
		}
		data = append(data, byte(len(data)*37))
	}
}

func FuzzAppendBase64(f *testing.F) {
	f.Add([]byte(nil))
	f.Add([]byte("a"))
	f.Add(bytes.Repeat([]byte{0, 0xff, 0x10, 0x83}, 50))
	f.Fuzz(func(t *testing.T, data []byte) {
		want := append([]byte("before"), referenceJSON(t, append([]byte{}, data...))...)
		// The encoder works on blocks and must not write beyond the end.
		room := bytes.Repeat([]byte{0xa5}, len(want)+64)
		got := AppendBase64(append(room[:0], "before"...), data)
		if !bytes.Equal(got, want) {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		if beyond := room[len(want):]; !bytes.Equal(beyond, bytes.Repeat([]byte{0xa5}, 64)) {
			t.Errorf("%d bytes: bytes beyond the end were written: %x", len(data), beyond)
		}
	})
}

func FuzzDecodeBase64(f *testing.F) {
	for _, text := range []string{"", "aGk=", "aGl=", "aGk", "aGk\n=", "YQ==\r\n\r\n", "====", strings.Repeat("AJz/", 30) + "YQ==", strings.Repeat("AJz/", 30) + "\n\n\n\n"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		want, failed := base64.StdEncoding.Strict().DecodeString(string(text))
		refuse := failed != nil || bytes.ContainsAny(text, "\r\n")
		got, err := DecodeBase64(text)
		if (err != nil) != refuse || err == nil && !bytes.Equal(got, want) {
			t.Fatalf("%q: %q, %v; the standard library: %q, %v", text, got, err, want, failed)
		}
		// As a parameter, with and without escapes.
		for _, message := range [][]byte{append([]byte(`"`), append(text, '"')...), AppendString(nil, text)} {
			if validValue(message) {
				var params struct {
					Data Base64 `param:"data"`
				}
				err := DecodeParams(append(append([]byte(`[`), message...), ']'), &params)
				if refuse && bytes.Contains(message, text) && err == nil || !refuse && (err != nil || !bytes.Equal(params.Data, want)) {
					t.Errorf("%s: %q, %v", message, params.Data, err)
				}
			}
		}
	})
}
