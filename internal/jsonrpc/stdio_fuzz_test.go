package jsonrpc

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"
)

// longByte in the input of FuzzStdioReceive stands for more than half of the
// transport's read buffer.
const longByte = 0xff

// splitReader returns as many bytes at once as sizes says, over and over.
type splitReader struct {
	rest  []byte
	sizes []byte
	next  int
}

func (p *splitReader) Read(b []byte) (int, error) {
	if len(p.rest) == 0 {
		return 0, io.EOF
	}
	size := len(p.rest)
	if len(p.sizes) > 0 {
		size = 1 + int(p.sizes[p.next%len(p.sizes)])
		p.next++
	}
	n := copy(b[:min(len(b), size)], p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

// linesOf splits input into its lines without line breaks and blank lines. It
// ends before a line that is too long.
func linesOf(input []byte, limit int) (lines []string, tooLarge bool) {
	for line := range bytes.SplitSeq(input, []byte("\n")) {
		line = bytes.TrimSuffix(line, []byte("\r"))
		switch {
		case len(line) > limit:
			return lines, true
		case len(bytes.TrimSpace(line)) > 0:
			lines = append(lines, string(line))
		}
	}
	return lines, false
}

// FuzzStdioReceive: any bytes give the same messages however reads split them.
func FuzzStdioReceive(f *testing.F) {
	f.Add([]byte("{\"id\":1}\n\r\n \t\n{}\r\nlast\r"), []byte{0, 3, 1})
	f.Add([]byte("\n\n\r\r\n"), []byte{})
	f.Add([]byte("a\xff\xff\nb\xff\r\n\xff"), []byte{255})
	f.Add(bytes.Repeat([]byte("x"), 101), []byte{50})
	f.Add(append(bytes.Repeat([]byte("x"), 100), "\r\n"...), []byte{100, 0, 0})
	f.Fuzz(func(t *testing.T, input, sizes []byte) {
		if bytes.Count(input, []byte{longByte}) > 8 {
			return
		}
		input = bytes.ReplaceAll(input, []byte{longByte}, bytes.Repeat([]byte("long"), 10_000))
		for _, limit := range []int{100, 50_000, 1 << 20} {
			want, tooLarge := linesOf(input, limit)
			s := NewStdio(io.NopCloser(&splitReader{rest: input, sizes: sizes}), discard{}, StdioOptions{MessageLimit: limit})
			got, err := receiveAll(s)
			var large TooLarge
			if !slices.Equal(got, want) || errors.As(err, &large) != tooLarge || !tooLarge && err != io.EOF {
				t.Errorf("limit %d: received %.300q and %v, want %.300q and too large: %v", limit, got, err, want, tooLarge)
			}
			if err := s.Close(0, ""); err != nil {
				t.Error(err)
			}
		}
	})
}
