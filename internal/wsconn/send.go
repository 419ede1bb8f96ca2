package wsconn

import (
	"errors"
	"io"
	"sync"
)

// Frames that are sent. Many peers refuse one of more than 16 MiB, and control
// frames wait for the end of one.
const (
	sentFrameBytes = 4 << 20
	fragmentBytes  = 64 << 10
)

// opcode is that of the first frame of a message that is sent.
func (c *Conn) opcode() byte {
	if c.options.Binary {
		return opBinary
	}
	return opText
}

// Send sends one message, which it does not keep. It may return before the
// bytes are on the wire, and blocks while the buffer is full; it is not an error
// that the peer does not read. A message of more than 4 MiB leaves in several
// frames.
func (c *Conn) Send(message []byte) error {
	opcode := c.opcode()
	for len(message) > sentFrameBytes {
		if err := c.wire.out.data(opcode, message[:sentFrameBytes]); err != nil {
			return c.failed("send", err)
		}
		message, opcode = message[sentFrameBytes:], opContinuation
	}
	if err := c.wire.out.data(bitFinal|opcode, message); err != nil {
		return c.failed("send", err)
	}
	return nil
}

// fragments are the buffers of messages being begun that nobody uses.
var fragments = sync.Pool{New: func() any { return new([fragmentBytes]byte) }}

// Begin starts a message whose length is not known. It leaves in frames of
// 64 KiB, or as large as what is written at once, up to 4 MiB: few large frames
// cost peers less that put a message together again and again. Close of the
// writer ends it, and until then nothing else may be sent. A message that cannot be ended can only be given up with the
// connection. The error of Begin is always nil.
func (c *Conn) Begin() (io.WriteCloser, error) {
	return &begun{conn: c, opcode: c.opcode(), buffer: fragments.Get().(*[fragmentBytes]byte)}, nil
}

// begun is a message that is being written. It is for one goroutine.
type begun struct {
	conn   *Conn
	opcode byte                 // of the next frame
	buffer *[fragmentBytes]byte // nil when the message has ended
	filled int                  // what of buffer is filled
}

var errMessageEnded = errors.New("the message has ended")

// Write implements io.Writer. It blocks as Send does.
func (b *begun) Write(p []byte) (written int, err error) {
	if b.buffer == nil {
		return 0, b.conn.failed("send", errMessageEnded)
	}
	for len(p) > 0 {
		n, err := b.some(p)
		if err != nil {
			return written, err
		}
		written += n
		p = p[n:]
	}
	return written, nil
}

// some takes a part of p: as a frame of its own if it is large, and nothing is
// before it.
func (b *begun) some(p []byte) (int, error) {
	if b.filled == len(b.buffer) {
		if err := b.frame(0, b.buffer[:]); err != nil {
			return 0, err
		}
		b.filled = 0
	}
	if b.filled == 0 && len(p) > len(b.buffer) {
		n := min(len(p), sentFrameBytes)
		return n, b.frame(0, p[:n])
	}
	n := copy(b.buffer[b.filled:], p)
	b.filled += n
	return n, nil
}

// Close ends the message. Closing again is harmless.
func (b *begun) Close() error {
	if b.buffer == nil {
		return nil
	}
	err := b.frame(bitFinal, b.buffer[:b.filled])
	fragments.Put(b.buffer)
	b.buffer = nil
	return err
}

func (b *begun) frame(final byte, payload []byte) error {
	if err := b.conn.wire.out.data(final|b.opcode, payload); err != nil {
		return b.conn.failed("send", err)
	}
	b.opcode = opContinuation
	return nil
}
