package terminal

import (
	"io"
	"strings"
	"testing"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// TestLook: where no signal tells that the terminal was resized, a look sends the new size, and
// a size that was not sent yet is replaced.
func TestLook(t *testing.T) {
	size := &execwirev1.TerminalSize{Rows: 24, Columns: 80}
	s := newSignalForwarder(Options{Terminal: true}, &keyboard{}, nil)
	s.measure, s.size = func() *execwirev1.TerminalSize { return size }, size
	sent := func(want *execwirev1.TerminalSize) {
		t.Helper()
		var got *execwirev1.TerminalSize
		select {
		case got = <-s.resize:
		default:
		}
		if got != want {
			t.Errorf("sent %v, want %v", got, want)
		}
	}
	s.look()
	sent(nil)
	size = &execwirev1.TerminalSize{Rows: 30, Columns: 80}
	s.look()
	size = &execwirev1.TerminalSize{Rows: 30, Columns: 100}
	last := size
	s.look()
	s.look()
	sent(last)
	sent(nil)
	size = nil // it is gone
	s.look()
	sent(nil)
}

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
