package relay

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// NewConn returns the stream as a connection of bytes, for protocols that bring
// their own messages. Writes leave in messages of at most Config.SegmentBytes;
// deadlines work. Its addresses are the stream's id, of network "relay". A peer's
// reset with [ReasonClosed] is the end of file. Close does not wait, and ends the
// stream when what was written has arrived. If it has not after
// Config.SilenceTimeout the stream ends with [ReasonMessageCut].
//
// Nothing else may send or receive on the stream.
func NewConn(s *Stream) net.Conn {
	return &conn{stream: s, reading: newDeadline(), writing: newDeadline(), closed: make(chan struct{})}
}

// conn is a stream as a net.Conn.
type conn struct {
	stream           *Stream
	reading, writing *deadline
	closing          sync.Once
	closed           chan struct{}

	writer sync.Mutex // one writer at a time: what it writes stays together

	mu   sync.Mutex // one reader at a time
	left []byte     // guarded by mu; of the message that is being read
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if isDone(c.closed) {
		return 0, net.ErrClosed
	}
	if len(p) == 0 {
		return 0, nil
	}
	done := c.reading.done()
	if isDone(done) {
		return 0, os.ErrDeadlineExceeded
	}
	if len(c.left) == 0 {
		message, err := c.stream.receive(done, timedOut)
		if err != nil {
			return 0, c.meaning(err)
		}
		c.left = message
	}
	n := copy(p, c.left)
	if c.left = c.left[n:]; len(c.left) == 0 {
		c.left = nil
	}
	return n, nil
}

func timedOut() error { return os.ErrDeadlineExceeded }

// meaning returns the error of a connection for one of the stream.
func (c *conn) meaning(err error) error {
	if isDone(c.closed) {
		return net.ErrClosed
	}
	if reset, is := errors.AsType[*ResetError](err); is && reset.Remote && reset.Reason == ReasonClosed {
		return io.EOF
	}
	return err
}

// Write implements net.Conn.
func (c *conn) Write(p []byte) (written int, err error) {
	c.writer.Lock()
	defer c.writer.Unlock()
	if isDone(c.closed) {
		return 0, net.ErrClosed
	}
	config := &c.stream.endpoint.table.config
	limit := min(config.SegmentBytes, config.MessageBytes, config.PlainMessageBytes)
	for len(p) > 0 {
		n := min(len(p), limit)
		done := c.writing.done()
		if isDone(done) {
			return written, os.ErrDeadlineExceeded
		}
		if err := c.stream.send(done, timedOut, p[:n]); err != nil {
			if isDone(c.closed) {
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
	c.closing.Do(func() {
		close(c.closed)
		c.reading.set(past)
		c.writing.set(past)
		c.stream.finish()
	})
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
func (c *conn) SetReadDeadline(t time.Time) error { return c.setDeadline(c.reading, t) }

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(t time.Time) error { return c.setDeadline(c.writing, t) }

func (c *conn) setDeadline(d *deadline, t time.Time) error {
	if isDone(c.closed) {
		return net.ErrClosed
	}
	d.set(t)
	return nil
}

// addr is the id of a stream.
type addr string

// Network implements net.Addr.
func (addr) Network() string { return "relay" }

// String implements net.Addr.
func (a addr) String() string { return string(a) }
