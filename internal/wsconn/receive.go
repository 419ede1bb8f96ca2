package wsconn

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// Sizes of the buffer of a message that is being received. It begins small, and
// grows by what has come and not by what was announced: a peer has to send what
// it wants kept. A buffer beyond the second size is not used again.
const (
	smallReceiveBytes = 4 << 10
	largeReceiveBytes = 64 << 10
)

// Buffers that nobody uses.
var (
	smallReceiveBuffers = sync.Pool{New: func() any { return new([smallReceiveBytes]byte) }}
	largeReceiveBuffers = sync.Pool{New: func() any { return new([largeReceiveBytes]byte) }}
)

// Receive returns the next message, which is valid until the next Receive. It
// blocks until there is one. Text and binary messages are the same, and text is
// not checked to be UTF-8; but with Options.Binary a text message is nil, and a
// binary one never is. The error is
//   - io.EOF if the peer closed the connection with code 1000,
//   - a [*TooLargeError] if a frame or the message is beyond its limit,
//   - a [*BudgetError] if Options.Budget has no space for the message, or the message has
//     to give way to others'
//   - a [*ClosedError] in it if the peer closed the connection with another code,
//   - net.ErrClosed in it after Close,
//   - anything else if the connection was lost.
//
// After an error nothing more can be received. A connection that was lost cannot
// send either. On one that the peer closed, answers may still be sent, for
// Options.CloseTimeout and as far as the peer reads them.
func (c *Conn) Receive() ([]byte, error) {
	c.release()
	if c.over.Err() != nil {
		return nil, c.ending()
	}
	if err := c.receive(); err != nil {
		c.release()
		c.end(c.meaning(err))
		c.limitSending()
		return nil, c.ending()
	}
	return c.received, nil
}

// receive reads a message into received.
func (c *Conn) receive() error {
	kind, message, err := c.ws.Reader(context.Background())
	if err != nil {
		return err
	}
	if c.options.Binary && kind != websocket.MessageBinary {
		_, err := io.Copy(io.Discard, message)
		return err
	}
	b := smallReceiveBuffers.Get().(*[smallReceiveBytes]byte)[:0]
	for {
		if len(b) == cap(b) {
			larger, err := c.grown(b)
			if err != nil {
				c.received = b
				return err
			}
			b = larger
		}
		n, err := message.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if err != nil {
			c.received = b
			if err == io.EOF {
				return nil
			}
			return err
		}
	}
}

// grown returns a copy of b with more room, of which there is never need for
// more than the largest message takes, and one to find that it has ended.
func (c *Conn) grown(b []byte) ([]byte, error) {
	var larger []byte
	if cap(b) < largeReceiveBytes {
		larger = largeReceiveBuffers.Get().(*[largeReceiveBytes]byte)[:len(b)]
	} else {
		most := min(2*int64(cap(b))-1, c.options.MessageBytes) + 1
		if !c.share.Hold(most) {
			return nil, c.options.Budget.refusal(false)
		}
		larger = make([]byte, len(b), most)
	}
	copy(larger, b)
	keep(b)
	return larger, nil
}

// keep gives a buffer up.
func keep(b []byte) {
	switch b = b[:cap(b)]; len(b) {
	case smallReceiveBytes:
		smallReceiveBuffers.Put((*[smallReceiveBytes]byte)(b))
	case largeReceiveBytes:
		largeReceiveBuffers.Put((*[largeReceiveBytes]byte)(b))
	}
}

// release gives up the message that was returned last.
func (c *Conn) release() {
	if c.received != nil {
		keep(c.received)
		c.received = nil
		c.share.Hold(0)
	}
}

// meaning says what an error of reading tells about the connection.
func (c *Conn) meaning(err error) error {
	var parted websocket.CloseError
	if errors.As(err, &parted) {
		if parted.Code == websocket.StatusNormalClosure {
			return io.EOF
		}
		return &ClosedError{Code: int(parted.Code), Reason: parted.Reason}
	}
	if found := c.wire.failure(); found != nil {
		err = found
	}
	if tooLarge, ok := errors.AsType[*TooLargeError](err); ok {
		return tooLarge
	}
	return notNormal(err)
}

// limitSending makes senders fail that wait for a peer that is not coming back.
func (c *Conn) limitSending() {
	cause := context.Cause(c.over)
	if isRefusal(cause) || errors.Is(cause, net.ErrClosed) {
		return
	}
	_, otherwise := cause.(*ClosedError)
	parting := cause == io.EOF || otherwise // a close frame, whatever came behind it
	if parting || c.wire.failure() == nil { // or a frame that is against the protocol
		if !c.wire.parted() {
			c.wire.out.promise(closeFrame(c.wire.out, codeProtocol, ""))
		}
		_ = c.wire.SetWriteDeadline(time.Now().Add(c.options.CloseTimeout))
		return
	}
	c.wire.out.fail(cause)
	_ = c.wire.SetWriteDeadline(past)
}

// isRefusal reports whether a message was refused, and its sender may be told.
func isRefusal(cause error) bool {
	switch cause.(type) {
	case *TooLargeError, *BudgetError:
		return true
	}
	return false
}

// ending is what Receive returns when the connection is over.
func (c *Conn) ending() error {
	cause := context.Cause(c.over)
	if cause == io.EOF || isRefusal(cause) {
		return cause
	}
	return c.failed("receive", cause)
}
