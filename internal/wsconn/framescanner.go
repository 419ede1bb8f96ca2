package wsconn

import (
	"encoding/binary"
	"io"
)

// frameScanner reads a stream of frames and inspects their headers, so that a
// frame beyond a limit is rejected before its payload is read.
//
// It never returns io.EOF, which the library would take for the end of a message
// when the connection breaks within one.
//
// It passes on a control frame only when it is complete: the library closes the
// connection if the payload does not follow the header within 5 s.
type frameScanner struct {
	src          io.Reader
	frameLimit   int64
	messageLimit int64

	header       []byte // incomplete header of the current frame
	payloadLeft  int64  // payload bytes of the current frame still to come
	isControl    bool   // the current frame is a control frame
	isClose      bool   // the current frame is a close frame
	messageBytes int64  // announced size of the current message so far

	pending []byte // incomplete control frame
	err     error  // what ended reading; a *TooLargeError for a limit
}

func newFrameScanner(from io.Reader, frameLimit, messageLimit int64) *frameScanner {
	return &frameScanner{src: from, frameLimit: frameLimit, messageLimit: messageLimit, header: make([]byte, 0, maxHeader)}
}

// Read implements io.Reader. p must have space for a complete control frame.
func (w *frameScanner) Read(p []byte) (int, error) {
	for w.err == nil {
		held := copy(p, w.pending)
		n, err := w.src.Read(p[held:])
		if err != nil {
			w.err = notNormal(err)
		}
		b := p[:held+n]
		ready := w.scan(b, held)
		w.pending = append(w.pending[:0], b[ready:]...)
		if ready > 0 {
			return ready, nil
		}
	}
	return 0, w.err
}

// scan inspects b, whose first known bytes were held back earlier, and returns
// how much of it can be passed on.
func (w *frameScanner) scan(b []byte, held int) int {
	start := 0 // start of the current frame in b
	for at := held; at < len(b); {
		if w.payloadLeft > 0 {
			n := min(w.payloadLeft, int64(len(b)-at))
			w.payloadLeft -= n
			at += int(n)
			continue
		}
		if len(w.header) == 0 {
			start = at
		}
		w.header = append(w.header, b[at])
		at++
		if len(w.header) == headerLength(w.header) {
			if err := w.beginFrame(); err != nil {
				w.err = err
				return start
			}
		}
	}
	if w.isControl && w.payloadLeft > 0 || len(w.header) > 0 && w.header[0]&bitControl != 0 {
		return start
	}
	return len(b)
}

// headerLength returns the length of the header that begins with b; more than
// len(b) if not yet known.
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

// beginFrame processes a complete header. The error is the limit that the frame
// exceeds.
func (w *frameScanner) beginFrame() error {
	first, length := w.header[0], uint64(w.header[1]&lengthBits)
	switch length {
	case length16:
		length = uint64(binary.BigEndian.Uint16(w.header[2:]))
	case length64:
		length = binary.BigEndian.Uint64(w.header[2:])
	}
	w.header = w.header[:0]
	// The library rejects longer control frames.
	w.isControl = first&bitControl != 0 && length <= maxControlPayload
	if !w.isControl && length > uint64(w.frameLimit) {
		return &TooLargeError{What: "frame", Bytes: clampLength(length), Limit: w.frameLimit}
	}
	w.payloadLeft = int64(length)
	w.isClose = first&opcodeBits == opClose
	if w.isControl {
		return nil
	}
	if first&opcodeBits != opContinuation {
		w.messageBytes = 0
	}
	w.messageBytes += w.payloadLeft
	if w.messageBytes > w.messageLimit {
		return &TooLargeError{What: "message", Bytes: w.messageBytes, Limit: w.messageLimit}
	}
	return nil
}

// closeReceived reports whether the last frame read is a close frame.
func (w *frameScanner) closeReceived() bool {
	return w.isClose && w.payloadLeft == 0 && len(w.header) == 0
}

// clampLength converts a length, which may be absurdly large, to int64.
func clampLength(length uint64) int64 { return int64(min(length, 1<<63-1)) }
