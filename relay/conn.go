package relay

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/execwire/execwire/internal/deadline"
)

// NewConn returns the stream as a byte stream. Writes are sent as messages of at
// most Config.SegmentBytes. Deadlines are supported. Both addresses are the
// stream's id, of network "relay". A reset by the peer with [ReasonClosed] reads
// as io.EOF. Close does not block: the stream ends when everything written has
// been acknowledged, or after Config.SilenceTimeout with [ReasonMessageCut].
//
// The stream must not be used in any other way.
func NewConn(s *Stream) net.Conn {
	return &conn{stream: s, readDeadline: deadline.New(), writeDeadline: deadline.New()}
}

// conn implements net.Conn on a stream.
type conn struct {
	stream                      *Stream
	readDeadline, writeDeadline *deadline.Deadline
	closed                      atomic.Bool

	writeMu sync.Mutex // serializes writers, so that each write stays contiguous

	mu     sync.Mutex // serializes readers
	unread []byte     // guarded by mu; rest of the message being read
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed.Load() {
		return 0, net.ErrClosed
	}
	if len(p) == 0 {
		return 0, nil
	}
	ctx := c.readDeadline.Context()
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	if len(c.unread) == 0 {
		message, err := c.stream.Receive(ctx)
		if err != nil {
			return 0, c.translateError(err)
		}
		c.unread = message
	}
	n := copy(p, c.unread)
	if c.unread = c.unread[n:]; len(c.unread) == 0 {
		c.unread = nil
	}
	return n, nil
}

// translateError maps an error of the stream to one of net.Conn.
func (c *conn) translateError(err error) error {
	if c.closed.Load() {
		return net.ErrClosed
	}
	if reset, is := errors.AsType[*ResetError](err); is && reset.Remote && reset.Reason == ReasonClosed {
		return io.EOF
	}
	return err
}

// Write implements net.Conn.
func (c *conn) Write(p []byte) (written int, err error) {
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	if c.closed.Load() {
		return 0, net.ErrClosed
	}
	config := &c.stream.endpoint.table.config
	limit := min(config.SegmentBytes, config.MessageBytes, config.PlainMessageBytes)
	for len(p) > 0 {
		n := min(len(p), limit)
		ctx := c.writeDeadline.Context()
		if ctx.Err() != nil {
			return written, context.Cause(ctx)
		}
		if err := c.stream.Send(ctx, p[:n]); err != nil {
			if c.closed.Load() {
				err = net.ErrClosed
			}
			return written, err
		}
		written += n
		p = p[n:]
	}
	return written, nil
}

// Close implements net.Conn.
func (c *conn) Close() error {
	if !c.closed.Swap(true) {
		past := time.Unix(1, 0)
		c.readDeadline.Set(past)
		c.writeDeadline.Set(past)
		c.stream.finish()
	}
	return nil
}

// LocalAddr implements net.Conn.
func (c *conn) LocalAddr() net.Addr { return addr(c.stream.id) }

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return addr(c.stream.id) }

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error { return c.setDeadline(c.readDeadline, t) }

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(t time.Time) error { return c.setDeadline(c.writeDeadline, t) }

func (c *conn) setDeadline(d *deadline.Deadline, t time.Time) error {
	if c.closed.Load() {
		return net.ErrClosed
	}
	d.Set(t)
	return nil
}

// addr is the id of a stream as a net.Addr.
type addr string

// Network implements net.Addr.
func (addr) Network() string { return "relay" }

// String implements net.Addr.
func (a addr) String() string { return string(a) }
