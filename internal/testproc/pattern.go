package testproc

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
)

// Pattern is an endless sequence of bytes in which every byte depends on its offset and no part
// repeats, so that a reader detects lost, duplicate and moved bytes. Different patterns have no
// part in common.
type Pattern uint8

// The patterns of the program flood.
const (
	StdoutPattern Pattern = 1
	StderrPattern Pattern = 2
)

// word returns the eight bytes at offset 8·i.
func (p Pattern) word(i uint64) uint64 {
	x := i*0x9e3779b97f4a7c15 + uint64(p)<<56 // splitmix64
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Fill sets b to the bytes from offset on. The race detector would take most of the time of
// tests with much output here.
//
//go:norace
func (p Pattern) Fill(b []byte, offset uint64) {
	var word [8]byte
	for len(b) > 0 {
		if offset%8 == 0 && len(b) >= 8 {
			binary.LittleEndian.PutUint64(b, p.word(offset/8))
			b, offset = b[8:], offset+8
			continue
		}
		binary.LittleEndian.PutUint64(word[:], p.word(offset/8))
		n := copy(b, word[offset%8:])
		b, offset = b[n:], offset+uint64(n)
	}
}

// Reader returns the first n bytes of the pattern.
func (p Pattern) Reader(n int64) io.Reader {
	return io.LimitReader(&patternReader{pattern: p}, n)
}

type patternReader struct {
	pattern Pattern
	offset  uint64
}

func (r *patternReader) Read(b []byte) (int, error) {
	r.pattern.Fill(b, r.offset)
	r.offset += uint64(len(b))
	return len(b), nil
}

// Verifier is a writer that accepts exactly the pattern from its beginning. The first wrong byte is
// an error, as is every later Write.
type Verifier struct {
	pattern Pattern
	offset  uint64
	want    []byte
	err     error
}

// NewVerifier returns a verifier at offset 0.
func (p Pattern) NewVerifier() *Verifier { return &Verifier{pattern: p} }

// Offset returns the number of correct bytes so far.
func (v *Verifier) Offset() uint64 { return v.offset }

func (v *Verifier) Write(b []byte) (int, error) {
	if v.err != nil {
		return 0, v.err
	}
	if cap(v.want) < len(b) {
		v.want = make([]byte, len(b))
	}
	want := v.want[:len(b)]
	v.pattern.Fill(want, v.offset)
	if !bytes.Equal(b, want) {
		i := 0
		for b[i] == want[i] {
			i++
		}
		v.offset += uint64(i)
		v.err = fmt.Errorf("wrong byte at offset %d: %#02x, want %#02x", v.offset, b[i], want[i])
		return i, v.err
	}
	v.offset += uint64(len(b))
	return len(b), nil
}
