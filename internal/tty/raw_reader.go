package tty

import (
	"errors"
	"io"
)

// Input returns what reads the keys: from, of which Ctrl-Z is not the end in raw mode.
func (k *Keyboard) Input(from io.Reader) io.Reader {
	if !ctrlZEnds || k.file == nil || from == nil {
		return from
	}
	return &rawReader{from: from, isRaw: k.IsRaw}
}

// rawReader undoes what package os does to the keys of a console of Windows: it takes Ctrl-Z
// for the end of the input. In raw mode that is a key as any other, and there is no end.
type rawReader struct {
	from  io.Reader
	isRaw func() bool
}

// ctrlZ is what the key is in other terminals.
const ctrlZ = 0x1a

// Read implements io.Reader.
func (r *rawReader) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	if n == 0 && len(p) > 0 && errors.Is(err, io.EOF) && r.isRaw() {
		p[0] = ctrlZ
		return 1, nil
	}
	return n, err
}
