package client

import (
	"bytes"
	"errors"
	"io"
	"os"
	"time"

	"github.com/execwire/execwire/client/internal/waitread"
)

// stdinReader is a reader whose Read may be interruptible.
type stdinReader struct {
	io.Reader
	// interrupt makes a pending Read and every later one fail; release restores the
	// reader and is the last call. Both are nil if Read cannot be interrupted.
	interrupt, release func()
}

// newStdinReader selects how r can be interrupted.
func newStdinReader(r io.Reader) stdinReader {
	d, ok := r.(interface{ SetReadDeadline(time.Time) error })
	if ok && d.SetReadDeadline(time.Time{}) == nil {
		// An error of SetReadDeadline means that the reader was closed, which interrupts
		// it too.
		return stdinReader{r, func() { _ = d.SetReadDeadline(time.Unix(1, 0)) }, func() { _ = d.SetReadDeadline(time.Time{}) }}
	}
	if f, ok := r.(*os.File); ok {
		if w, err := waitread.New(f); err == nil {
			return stdinReader{w, w.Interrupt, w.Release}
		}
	}
	return stdinReader{Reader: r}
}

// pump reads until the input ends, fails or is no longer needed.
func (p *stdinPump) pump() {
	defer close(p.reading)
	for {
		space := p.awaitSpace()
		if space == nil {
			return
		}
		n, err := p.input.Read(space)
		p.mu.Lock()
		over := p.discarded
		p.add(n)
		p.mu.Unlock()
		if over || errors.Is(err, errDetachKeys) { // the input continues after a detach
			return
		}
		switch {
		case errors.Is(err, io.EOF):
			p.end()
			return
		case err != nil:
			p.fail(&InputError{Err: err})
			return
		}
	}
}

// awaitSpace blocks until the window has space, and returns a buffer to read into; nil
// when no more input is needed.
func (p *stdinPump) awaitSpace() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	for !p.discarded {
		if space := p.tail(); len(space) > 0 {
			return space
		}
		wait := p.spaceFreed.Wait()
		p.mu.Unlock()
		<-wait
		p.mu.Lock()
	}
	return nil
}

// errDetachKeys ends the input at the detach keys.
var errDetachKeys = errors.New("the keys to detach were pressed")

// detachReader ends input at the detach keys. They are reported once everything before
// them was returned.
type detachReader struct {
	from    io.Reader
	keys    []byte
	pressed func()

	matched int    // number of keys matched, and withheld
	found   bool   // the keys were found
	pending []byte // returned first
	err     error  // returned after pending
	buffer  [512]byte
}

func (r *detachReader) Read(p []byte) (int, error) {
	for len(r.pending) == 0 {
		switch {
		case r.found:
			r.pressed()
			return 0, errDetachKeys
		case r.err != nil:
			return 0, r.err
		}
		n, err := r.from.Read(r.buffer[:])
		r.take(r.buffer[:n])
		if r.err = err; err != nil && !r.found {
			r.pending = append(r.pending, r.keys[:r.matched]...)
			r.matched = 0
		}
	}
	n := copy(p, r.pending)
	r.pending = r.pending[n:]
	return n, nil
}

// take searches input for the keys and keeps everything else.
func (r *detachReader) take(input []byte) {
	for _, b := range input {
		if r.found {
			return
		}
		held := append(bytes.Clone(r.keys[:r.matched]), b)
		free := 0
		for !bytes.HasPrefix(r.keys, held[free:]) {
			free++
		}
		r.pending = append(r.pending, held[:free]...)
		r.matched = len(held) - free
		r.found = r.matched == len(r.keys)
	}
}
