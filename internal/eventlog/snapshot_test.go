package eventlog

import (
	"bytes"
	"fmt"
	"testing"
)

func TestSnapshot_HeadAndTail(t *testing.T) {
	for _, size := range []int{0, 1, 15, 16, 17, 31, 32, 33, 100, 5000} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			l := New(small) // 16 bytes each
			content := pattern(size)
			for i := 0; i < size; i += 7 {
				l.Append(Stdout, content[i:min(i+7, size)])
			}
			got := l.Snapshot(Stdout)
			head := content[:min(size, 16)]
			tail := content[max(len(head), size-16):]
			omitted := size - len(head) - len(tail)
			if !bytes.Equal(got.Head, head) || !bytes.Equal(got.Tail, tail) {
				t.Errorf("head %x and tail %x, want %x and %x", got.Head, got.Tail, head, tail)
			}
			if got.Omitted != uint64(omitted) || got.Total != uint64(size) {
				t.Errorf("omitted %d of %d, want %d of %d", got.Omitted, got.Total, omitted, size)
			}
		})
	}
}

func TestSnapshot_Flood_DoesNotEvictOtherStream(t *testing.T) {
	l := New(small)
	write(t, l.Writer(Stderr), "it failed because of this")
	flood(l.Writer(Stdout), 1<<20)
	got := l.Snapshot(Stderr)
	if s := string(got.Head) + string(got.Tail); s != "it failed because of this" || got.Omitted != 0 {
		t.Errorf("stderr is %q with %d bytes omitted", s, got.Omitted)
	}
}

func TestSnapshot_IsCopy(t *testing.T) {
	l := New(Limits{})
	l.Append(Stdout, []byte("said"))
	l.Snapshot(Stdout).Head[0] = 'X'
	r := must[*Reader](t)(l.NewReader(0))
	defer r.Close()
	if got := text(tryNext(t, r, 0)); got != "o(said)" {
		t.Errorf("the log now has %s", got)
	}
}

// pattern returns n bytes without short repetitions.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i/251)
	}
	return b
}
