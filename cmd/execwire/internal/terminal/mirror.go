package terminal

import (
	"io"
	"sync"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/screen"
)

// mirror passes the output of a process to this program's terminal, and knows what that shows, so that
// it can show it again after something else was printed. Its methods may be called concurrently.
type mirror struct {
	to       io.Writer // receives the output; writes it to terminal, at least
	terminal io.Writer

	mu     sync.Mutex
	screen *screen.Screen // guarded by mu; nil if the terminal has none of a size that fits
	// painted is whether the main screen is known, too: what was there before was painted over.
	painted bool // guarded by mu
}

func newMirror(to, terminal io.Writer, size *execwirev1.TerminalSize) *mirror {
	m := &mirror{to: to, terminal: terminal}
	m.resize(size)
	return m
}

// Write implements io.Writer. It blocks while the terminal does.
func (m *mirror) Write(output []byte) (int, error) {
	m.mu.Lock()
	if m.screen != nil {
		m.screen.Write(output)
	}
	m.mu.Unlock()
	return m.to.Write(output)
}

// paint shows what the terminal of the process showed before; nil changes nothing.
func (m *mirror) paint(output []byte) {
	m.mu.Lock()
	m.painted = len(output) > 0
	if m.screen != nil {
		m.screen.Write(output)
	}
	m.mu.Unlock()
	_, _ = m.terminal.Write(output)
}

// restore shows again what the program has drawn. What is on the main screen stays if this program's
// shell has printed there as well.
func (m *mirror) restore() {
	m.mu.Lock()
	var output []byte
	switch {
	case m.screen == nil:
	case m.painted:
		output = m.screen.Repaint()
	default:
		output = m.screen.RepaintAlternate()
	}
	m.mu.Unlock()
	_, _ = m.terminal.Write(output)
}

// resize records another size of this program's terminal.
func (m *mirror) resize(size *execwirev1.TerminalSize) {
	m.mu.Lock()
	defer m.mu.Unlock()
	columns, rows := int(size.GetColumns()), int(size.GetRows())
	switch {
	case !screen.Fits(columns, rows):
		m.screen = nil
	case m.screen == nil:
		m.screen = screen.New(columns, rows)
	default:
		m.screen.Resize(columns, rows)
	}
}
