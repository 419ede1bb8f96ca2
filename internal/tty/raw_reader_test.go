package tty

import (
	"io"
	"strings"
	"testing"
)

// TestRawReader_CtrlZIsAKey only while keys are passed to the process.
func TestRawReader_CtrlZIsAKey(t *testing.T) {
	raw := true
	r := &rawReader{from: io.MultiReader(strings.NewReader("a")), isRaw: func() bool { return raw }}
	p := make([]byte, 4)
	for i, want := range []string{"a", "\x1a", "\x1a"} {
		if n, err := r.Read(p); err != nil || string(p[:n]) != want {
			t.Errorf("read %d = %q, %v, want %q", i, p[:n], err, want)
		}
	}
	raw = false
	if n, err := r.Read(p); n != 0 || err != io.EOF {
		t.Errorf("without raw mode: %d, %v, want the end", n, err)
	}
}
