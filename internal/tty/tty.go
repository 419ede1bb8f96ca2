// Package tty has the terminal of this program: its raw mode and its size.
package tty

import (
	"errors"
	"os"
	"sync"

	"golang.org/x/term"
)

// Is reports whether a file is a terminal.
func Is(f *os.File) (is bool) {
	control(f, func(fd int) { is = term.IsTerminal(fd) })
	return is
}

// control calls do with the descriptor of a file, if it is open. [os.File.Fd] would make it
// blocking, so that a read could not be interrupted.
func control(f *os.File, do func(fd int)) {
	if conn, err := f.SyscallConn(); err == nil {
		_ = conn.Control(func(fd uintptr) { do(int(fd)) }) // it fails if the file is closed
	}
}

// Size returns the size of the first of these files that is a terminal, or zeros if none is
// one.
func Size(files ...*os.File) (rows, columns uint32) {
	for _, f := range files {
		control(f, func(fd int) {
			if width, height, err := term.GetSize(fd); err == nil && width > 0 && height > 0 {
				rows, columns = uint32(height), uint32(width)
			}
		})
		if rows > 0 {
			break
		}
	}
	return rows, columns
}

// Keyboard is a terminal whose input goes to a process while it is in raw mode. The zero
// value is no terminal, and its methods do nothing. Its methods may be called concurrently.
type Keyboard struct {
	file *os.File // nil without a terminal
	out  *os.File // the screen, perhaps

	mu     sync.Mutex
	saved  *term.State // in raw mode; guarded by mu
	screen func()      // restores the screen; guarded by mu
}

// NewKeyboard returns the keyboard of a terminal, and out, which may be its screen.
func NewKeyboard(in, out *os.File) *Keyboard { return &Keyboard{file: in, out: out} }

// Raw enables raw mode. A terminal that has none is used as it is.
func (k *Keyboard) Raw() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.file == nil || k.saved != nil {
		return
	}
	control(k.file, func(fd int) { k.saved, _ = term.MakeRaw(fd) })
	k.screen = rawScreen(k.out)
}

// Restore restores the mode of the terminal. Calling it again does nothing.
func (k *Keyboard) Restore() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.saved == nil {
		return
	}
	control(k.file, func(fd int) { _ = term.Restore(fd, k.saved) }) // this fails if the terminal is gone
	k.saved = nil
	k.screen()
}

// IsRaw reports whether keys are passed to the process.
func (k *Keyboard) IsRaw() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.saved != nil
}

// ErrNone is the error for a program without a terminal.
var ErrNone = errors.New("stdin and stdout are not a terminal")
