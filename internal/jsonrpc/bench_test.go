package jsonrpc

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"testing"
)

type benchWrite struct {
	ProcessID string  `param:"processId"`
	Chunk     Base64  `param:"chunk"`
	WriteID   *string `param:"writeId"`
}

func BenchmarkParseWrite(b *testing.B) {
	data := bytes.Repeat([]byte{0, 0x9c, 0xff, 'a'}, 2<<10)
	message := fmt.Appendf(nil, `{"id":17,"method":"process/write","params":{"processId":"p-1","chunk":"%s","writeId":"w-17"}}`,
		base64.StdEncoding.EncodeToString(data))
	b.Run("envelope", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := Parse(message); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("whole", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		b.ReportAllocs()
		for b.Loop() {
			m, err := Parse(message)
			if err != nil {
				b.Fatal(err)
			}
			var write benchWrite
			if err := DecodeParams(m.Params, &write); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkAppendOutput(b *testing.B) {
	for _, size := range []int{8 << 10, 32 << 10} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			data := bytes.Repeat([]byte{0, 0x9c, 0xff, 'a'}, size/4)
			var message []byte
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				message = appendOutput(message[:0], "p-1", 1234567, data)
			}
		})
	}
}

func BenchmarkParseRead(b *testing.B) {
	message := []byte(`{"id":17,"method":"process/read","params":{"processId":"p-1","afterSeq":7,"maxBytes":65536,"waitMs":1000}}`)
	b.ReportAllocs()
	for b.Loop() {
		m, err := Parse(message)
		if err != nil {
			b.Fatal(err)
		}
		var read readParams
		if err := DecodeParams(m.Params, &read); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppendText(b *testing.B) {
	text := bytes.Repeat([]byte("drwxr-xr-x 2 root root 4096 Nov 21 16:26 attach.md "), 160)
	b.SetBytes(int64(len(text)))
	var message []byte
	for b.Loop() {
		message = AppendString(message[:0], text)
	}
}
