package terminal

import (
	"testing"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/tty"
)

// TestLook: where no signal tells that the terminal was resized, a look sends the new size, and
// a size that was not sent yet is replaced.
func TestLook(t *testing.T) {
	size := &execwirev1.TerminalSize{Rows: 24, Columns: 80}
	s := newSignalForwarder(Options{Terminal: true}, &tty.Keyboard{}, nil)
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
