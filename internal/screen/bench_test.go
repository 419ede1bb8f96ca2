package screen

import (
	"strings"
	"testing"
)

func BenchmarkWrite(b *testing.B) {
	for name, line := range map[string]string{
		"plain":  "file 1 root root  1234 Nov 29 04:40 some-file-name.go\r\n",
		"colour": "\x1b[0m\x1b[01;34msome-directory\x1b[0m  \x1b[01;32msome-program\x1b[0m  a-file\r\n",
		"wide":   "漢字かな交じり文 — text with é and ü\r\n",
	} {
		b.Run(name, func(b *testing.B) {
			text := []byte(strings.Repeat(line, 4096/len(line)))
			s := New(80, 24)
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				s.Write(text)
			}
		})
	}
}
