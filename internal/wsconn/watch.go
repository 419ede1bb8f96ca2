package wsconn

import (
	"encoding/binary"
	"io"
)

// watch reads a stream of frames and looks at their headers as they pass, so
// that one beyond a limit is refused before any of its payload is read.
//
// It never returns io.EOF, which the library takes for the end of a message when
// the connection breaks off within one.
//
// It hands a control frame on only when it is complete: the library gives the
// payload of one 5 s to follow its header, and closes the connection otherwise.
type watch struct {
	from         io.Reader
	frameLimit   int64
	messageLimit int64

	header  []byte // of the frame that begins; incomplete
	left    int64  // what is to come of the current frame's payload
	control bool   // the current frame is a control frame
	parting bool   // the current frame is a close frame
	message int64  // what was announced so far of the current message's payload

	held []byte // the beginning of a control frame that is not complete
	err  error  // what ended it; a *TooLargeError if a limit did
}

func newWatch(from io.Reader, frameLimit, messageLimit int64) *watch {
	return &watch{from: from, frameLimit: frameLimit, messageLimit: messageLimit, header: make([]byte, 0, maxHeader)}
}

// Read implements io.Reader. p must have room for a whole control frame.
func (w *watch) Read(p []byte) (int, error) {
	for w.err == nil {
		known := copy(p, w.held)
		n, err := w.from.Read(p[known:])
		if err != nil {
			w.err = notNormal(err)
		}
		b := p[:known+n]
		ready := w.scan(b, known)
		w.held = append(w.held[:0], b[ready:]...)
		if ready > 0 {
			return ready, nil
		}
	}
	return 0, w.err
}

// scan looks at b, of which the first known bytes were held back before, and
// returns how much of it may be handed on.
func (w *watch) scan(b []byte, known int) int {
	begin := 0 // of the current frame, as far as it is in b
	for at := known; at < len(b); {
		if w.left > 0 {
			n := min(w.left, int64(len(b)-at))
			w.left -= n
			at += int(n)
			continue
		}
		if len(w.header) == 0 {
			begin = at
		}
		w.header = append(w.header, b[at])
		at++
		if len(w.header) == headerLength(w.header) {
			if err := w.enter(); err != nil {
				w.err = err
				return begin
			}
		}
	}
	if w.control && w.left > 0 || len(w.header) > 0 && w.header[0]&bitControl != 0 {
		return begin
	}
	return len(b)
}

// headerLength returns how long the header is that begins with b; more than
// len(b) if b does not tell.
func headerLength(b []byte) int {
	if len(b) < 2 {
		return maxHeader
	}
	n := 2
	switch b[1] & lengthBits {
	case length16:
		n += 2
	case length64:
		n += 8
	}
	if b[1]&bitMasked != 0 {
		n += 4
	}
	return n
}

// enter begins the frame whose header is complete, or returns the limit that it
// breaks.
func (w *watch) enter() error {
	first, length := w.header[0], uint64(w.header[1]&lengthBits)
	switch length {
	case length16:
		length = uint64(binary.BigEndian.Uint16(w.header[2:]))
	case length64:
		length = binary.BigEndian.Uint64(w.header[2:])
	}
	w.header = w.header[:0]
	// A longer control frame is against the protocol and the library says so.
	w.control = first&bitControl != 0 && length <= maxControlPayload
	if !w.control && length > uint64(w.frameLimit) {
		return &TooLargeError{What: "frame", Bytes: announced(length), Limit: w.frameLimit}
	}
	w.left = int64(length)
	w.parting = first&opcodeBits == opClose
	if w.control {
		return nil
	}
	if first&opcodeBits != opContinuation {
		w.message = 0
	}
	w.message += w.left
	if w.message > w.messageLimit {
		return &TooLargeError{What: "message", Bytes: w.message, Limit: w.messageLimit}
	}
	return nil
}

// parted reports whether the last of what was read is a close frame.
func (w *watch) parted() bool { return w.parting && w.left == 0 && len(w.header) == 0 }

// announced returns a length, which peers may put beyond what any file or memory
// can have, as a number of bytes.
func announced(length uint64) int64 { return int64(min(length, 1<<63-1)) }
