package main

import (
	"os"
	"sync"

	"golang.org/x/term"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// terminalSize returns the size of the terminal this program is at, or nil when
// none of its streams is one.
func terminalSize(std streams) *execwirev1.TerminalSize {
	for _, f := range []*os.File{std.out, std.in, std.err} {
		columns, rows, err := term.GetSize(int(f.Fd()))
		if err == nil && columns > 0 && rows > 0 {
			return &execwirev1.TerminalSize{Rows: uint32(rows), Columns: uint32(columns)}
		}
	}
	return nil
}

// keyboard is the terminal at stdin, whose keys go to the process while it is
// raw. The zero value is no terminal, for which everything does nothing. Its
// methods may be called concurrently.
type keyboard struct {
	file *os.File // nil when there is none to make raw

	mu    sync.Mutex
	saved *term.State // while raw; guarded by mu
}

// newKeyboard returns the keyboard of a run: there is one when the keys are to
// go to a terminal and come from one.
func newKeyboard(how attention, std streams) *keyboard {
	if !how.terminal || !how.stdin || !term.IsTerminal(int(std.in.Fd())) {
		return &keyboard{}
	}
	return &keyboard{file: std.in}
}

// raw passes every key on as it is.
func (k *keyboard) raw() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.file == nil || k.saved != nil {
		return
	}
	// A terminal that cannot be made raw is used as it is.
	k.saved, _ = term.MakeRaw(int(k.file.Fd()))
}

// restore gives the terminal back as it was. Calling it again does nothing.
func (k *keyboard) restore() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.saved == nil {
		return
	}
	_ = term.Restore(int(k.file.Fd()), k.saved) // it is gone if this fails
	k.saved = nil
}
