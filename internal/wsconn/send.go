package wsconn

import (
	"errors"
	"io"
	"sync"
)

// Limits of sent frames. Many peers reject frames of more than 16 MiB, and
// control frames have to wait for the end of a frame.
const (
	sentFrameBytes = 4 << 20
	fragmentBytes  = 64 << 10
)

// opcode returns the opcode of a message's first frame.
func (c *Conn) opcode() byte {
	if c.options.Binary {
		return opBinary
	}
	return opText
}

// Send sends one message, without retaining it. It may return before the message
// is written, and blocks while the buffer is full; a peer that does not read is
// not an error. A message of more than 4 MiB is sent in several frames.
func (c *Conn) Send(message []byte) error {
	opcode := c.opcode()
	for len(message) > sentFrameBytes {
		if err := c.out.sendData(opcode, message[:sentFrameBytes]); err != nil {
			return c.wrapError("send", err)
		}
		message, opcode = message[sentFrameBytes:], opContinuation
	}
	if err := c.out.sendData(bitFinal|opcode, message); err != nil {
		return c.wrapError("send", err)
	}
	return nil
}

// TrySend is [Conn.Send] if that does not have to wait, neither for buffer space nor for the
// peer. Otherwise, and if the connection has failed before, it does nothing and returns false.
func (c *Conn) TrySend(message []byte) bool {
	return c.out.trySend(bitFinal|c.opcode(), message)
}

// fragmentBuffers pools the buffers of [messageWriter].
var fragmentBuffers = sync.Pool{New: func() any { return new([fragmentBytes]byte) }}

// Begin starts a message of unknown length. It is sent in frames of 64 KiB, or of
// the size of a larger single write, up to 4 MiB: few large frames are cheaper
// for peers that concatenate fragments. Closing the writer ends the message;
// nothing else may be sent before that. An incomplete message can only be
// abandoned by closing the connection. The error of Begin is always nil.
func (c *Conn) Begin() (io.WriteCloser, error) {
	return &messageWriter{conn: c, opcode: c.opcode(), buffer: fragmentBuffers.Get().(*[fragmentBytes]byte)}, nil
}

// messageWriter writes one message. It is for one goroutine.
type messageWriter struct {
	conn   *Conn
	opcode byte                 // of the next frame
	buffer *[fragmentBytes]byte // nil after Close
	n      int                  // used part of buffer
}

var errMessageEnded = errors.New("the message has ended")

// Write implements io.Writer. It blocks as Send does.
func (b *messageWriter) Write(p []byte) (written int, err error) {
	if b.buffer == nil {
		return 0, b.conn.wrapError("send", errMessageEnded)
	}
	for len(p) > 0 {
		n, err := b.writePart(p)
		if err != nil {
			return written, err
		}
		written += n
		p = p[n:]
	}
	return written, nil
}

// writePart writes a part of p, directly as a frame if it is large and the buffer
// is empty.
func (b *messageWriter) writePart(p []byte) (int, error) {
	if b.n == len(b.buffer) {
		if err := b.sendFrame(0, b.buffer[:]); err != nil {
			return 0, err
		}
		b.n = 0
	}
	if b.n == 0 && len(p) > len(b.buffer) {
		n := min(len(p), sentFrameBytes)
		return n, b.sendFrame(0, p[:n])
	}
	n := copy(b.buffer[b.n:], p)
	b.n += n
	return n, nil
}

// Close ends the message. Further calls have no effect.
func (b *messageWriter) Close() error {
	if b.buffer == nil {
		return nil
	}
	err := b.sendFrame(bitFinal, b.buffer[:b.n])
	fragmentBuffers.Put(b.buffer)
	b.buffer = nil
	return err
}

func (b *messageWriter) sendFrame(final byte, payload []byte) error {
	if err := b.conn.out.sendData(final|b.opcode, payload); err != nil {
		return b.conn.wrapError("send", err)
	}
	b.opcode = opContinuation
	return nil
}
