package client

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"
)

func TestDetachReader(t *testing.T) {
	for _, tt := range []struct {
		keys, input, passed string
		detached            bool
	}{
		{"\x10\x11", "ls\n\x10\x11more", "ls\n", true},
		{"\x10\x11", "\x10\x11", "", true},
		{"\x10\x11", "a\x10b\x11c", "a\x10b\x11c", false},
		{"\x10\x11", "a\x10\x10\x11", "a\x10", true},
		{"\x10\x11", "a\x10", "a\x10", false},
		{"aab", "aaab", "a", true},
		{"abab", "abaabab", "aba", true},
		{"q", "xqy", "x", true},
	} {
		for name, cut := range map[string]func(io.Reader) io.Reader{
			"whole": func(r io.Reader) io.Reader { return r }, "bytes": iotest.OneByteReader, "data with error": iotest.DataErrReader,
		} {
			pressed := 0
			r := &detachReader{
				from: cut(bytes.NewReader([]byte(tt.input))),
				keys: []byte(tt.keys), pressed: func() { pressed++ },
			}
			var passed []byte
			var err error
			for err == nil {
				var n int
				some := make([]byte, 3)
				n, err = r.Read(some)
				if passed = append(passed, some[:n]...); pressed > 0 && n > 0 {
					t.Errorf("%q, %s: %q comes after the keys", tt.input, name, some[:n])
				}
			}
			if string(passed) != tt.passed || errors.Is(err, errDetachKeys) != tt.detached || (pressed == 1) != tt.detached {
				t.Errorf("%q, %s: passed %q, pressed %d times, %v; want %q, %v", tt.input, name, passed, pressed, err, tt.passed, tt.detached)
			}
		}
	}
}
