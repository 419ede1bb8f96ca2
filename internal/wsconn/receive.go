package wsconn

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"time"

	"github.com/execwire/execwire/internal/buffers"
)

// largeReceiveBytes is how large a receive buffer may be without counting against the
// budget. A buffer starts small and grows with the data received, not with what was
// announced: a peer must send the bytes that it wants buffered.
const largeReceiveBytes = 64 << 10

// Receive returns the next message, which is valid until the next Receive, and
// blocks until there is one. Text and binary messages are treated alike, and text
// is not checked to be UTF-8; but with Options.Binary a text message is nil, and
// a binary one never is. The error is
//   - io.EOF if the peer closed the connection with code 1000,
//   - a [*TooLargeError] if a frame or the message exceeds its limit,
//   - a [*BudgetError] if Options.Budget has no space for the message, or evicted
//     it,
//   - a wrapped [*ClosedError] if the peer closed the connection with another code,
//   - a wrapped net.ErrClosed after Close,
//   - anything else if the connection was lost.
//
// After an error nothing more can be received. A lost connection cannot send
// either. On one that the peer closed, responses may still be sent for
// Options.CloseTimeout, as far as the peer reads them.
func (c *Conn) Receive() ([]byte, error) {
	c.release()
	if c.ended.Err() != nil {
		return nil, c.receiveError()
	}
	if err := c.receive(); err != nil {
		c.release()
		c.end(c.endCause(err))
		c.limitSending()
		return nil, c.receiveError()
	}
	return c.received, nil
}

// ReceiveOwned is [Conn.Receive], but the message belongs to the caller, who may
// return its buffer with [buffers.Put]. The message takes at least three quarters of
// its buffer.
func (c *Conn) ReceiveOwned() ([]byte, error) {
	message, err := c.Receive()
	if err != nil || message == nil {
		return nil, err
	}
	if 4*len(message) < 3*cap(message) {
		return bytes.Clone(message), nil // a sparse buffer would waste the caller's memory
	}
	c.received = nil
	c.share.Resize(0)
	return message, nil
}

// receive reads a message into received.
func (c *Conn) receive() error {
	opcode, err := c.in.next()
	if err != nil {
		return err
	}
	if c.options.Binary && opcode != opBinary {
		_, err := io.Copy(io.Discard, c.in)
		return err
	}
	b := buffers.Get(buffers.Min)
	for {
		if len(b) == cap(b) {
			larger, err := c.grow(b)
			if err != nil {
				c.received = b
				return err
			}
			b = larger
		}
		n, err := c.in.Read(b[len(b):cap(b)])
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

// grow returns a larger copy of b, for the rest of the frame if that fits into a pooled
// buffer. A larger one never exceeds the maximum message size plus one byte, which is
// needed to detect the end.
func (c *Conn) grow(b []byte) ([]byte, error) {
	left, more := c.in.remaining()
	size := int64(len(b)) + left + 1
	if more {
		size = max(size, 2*int64(len(b)))
	}
	if size > buffers.Max {
		size = min(max(2*int64(len(b)), largeReceiveBytes), c.options.MessageBytes+1)
	}
	capacity := buffers.Size(int(size))
	if capacity > largeReceiveBytes && !c.share.Resize(int64(capacity)) {
		return nil, c.options.Budget.newError(false)
	}
	larger := append(buffers.Get(capacity), b...)
	buffers.Put(b)
	return larger, nil
}

// release gives up the message returned last.
func (c *Conn) release() {
	if c.received != nil {
		buffers.Put(c.received)
		c.received = nil
		c.share.Resize(0)
	}
}

// endCause returns the cause of the connection's end for a read error.
func (c *Conn) endCause(err error) error {
	if closed, ok := err.(*ClosedError); ok && closed.Code == CodeNormal {
		return io.EOF
	}
	return err
}

// limitSending bounds pending sends after the end of receiving: the peer may be
// gone.
func (c *Conn) limitSending() {
	cause := context.Cause(c.ended)
	if isRefusal(cause) || errors.Is(cause, net.ErrClosed) {
		return
	}
	if isAnswered(cause) {
		_ = c.conn.SetWriteDeadline(time.Now().Add(c.options.CloseTimeout))
		return
	}
	c.out.fail(cause)
	_ = c.conn.SetWriteDeadline(pastTime)
}

// isAnswered reports whether the peer closed or violated the protocol, so that a close
// frame answers it.
func isAnswered(cause error) bool {
	switch cause.(type) {
	case *ClosedError, protocolError:
		return true
	}
	return cause == io.EOF
}

// isRefusal reports whether a message was rejected and its sender can get the reason.
func isRefusal(cause error) bool {
	switch cause.(type) {
	case *TooLargeError, *BudgetError:
		return true
	}
	return false
}

// receiveError returns the error of Receive after the end of the connection.
func (c *Conn) receiveError() error {
	cause := context.Cause(c.ended)
	if cause == io.EOF || isRefusal(cause) {
		return cause
	}
	return c.wrapError("receive", cause)
}
