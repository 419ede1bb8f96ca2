// Package portconn makes a net.Conn of a ConnectPort stream, and a net.Listener of a ListenPort stream.
package portconn

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/deadline"
	"github.com/execwire/execwire/internal/notify"
)

const (
	// pieceBytes is the most data in one message: just above 32 KiB costs gRPC a buffer of 1 MiB.
	pieceBytes = 32<<10 - 256
	// smallBytes is what is copied into a message of its own rather than kept in a large buffer.
	smallBytes = pieceBytes / 2
	// lingerTimeout is how long the server may take to deliver what was written before Close. It is
	// that of Linux for a connection that is closed and waits for its peer.
	lingerTimeout = time.Minute
)

// Stream is the caller's side of ConnectPort.
type Stream = grpc.BidiStreamingClient[execwirev1.ConnectPortRequest, execwirev1.ConnectPortResponse]

// Conn is a TCP connection of the server as a net.Conn. All methods may be called concurrently.
//
// Read returns io.EOF only when the port has ended its direction in order, and Write succeeds when
// the data is on its way. The loss of the connection to the server is an error for both.
type Conn struct {
	ctx     context.Context // of the stream
	stream  Stream
	cancel  context.CancelCauseFunc // of the stream
	explain func(error) error

	local, remote net.Addr

	reading  sync.Mutex  // held during Read
	unread   []byte      // guarded by reading
	partial  atomic.Bool // unread is not empty
	incoming chan []byte
	end      chan struct{} // closed when the port has ended its direction
	outgoing chan []byte
	over     chan struct{} // closed when the stream has ended, after err was set
	err      error

	readDeadline, writeDeadline *deadline.Deadline
	closed, writeClosed         chan struct{}
	closeOnce, closeWriteOnce   sync.Once
	abort                       atomic.Bool // Close resets
}

var (
	errClosed = errors.New("the connection was closed")
	errBroken = errors.New("the server broke the contract: the stream of a connection ended before its end message")
)

// New returns the connection of a stream whose first message was sent. ctx is that of the stream, and
// cancel ends it; explain translates its errors. The goroutines of the connection run in background until
// the stream ends, at most a minute after Close. The connection must be closed.
func New(ctx context.Context, stream Stream, cancel context.CancelCauseFunc, explain func(error) error, local, remote net.Addr, background *sync.WaitGroup) *Conn {
	c := &Conn{
		ctx: ctx, stream: stream, cancel: cancel, explain: explain, local: local, remote: remote,
		incoming: make(chan []byte), outgoing: make(chan []byte), end: make(chan struct{}), over: make(chan struct{}),
		readDeadline: deadline.New(), writeDeadline: deadline.New(), closed: make(chan struct{}), writeClosed: make(chan struct{}),
	}
	background.Go(c.receive)
	background.Go(c.send)
	return c
}

// receive passes what arrives to Read, and notices the end of the stream.
func (c *Conn) receive() {
	ended := false
	for {
		m, err := c.stream.Recv()
		switch {
		case errors.Is(err, io.EOF) && ended:
			c.err = net.ErrClosed // both directions have ended
		case errors.Is(err, io.EOF):
			c.err = errBroken
		case err != nil:
			c.err = c.explain(err)
		case m.GetConnected() != nil: // of an accepted connection
			continue
		case m.GetEnd() != nil:
			ended = true
			close(c.end)
			continue
		default:
			select {
			case c.incoming <- m.GetData():
				continue
			case <-c.closed: // nobody will read it: reset, as TCP does
				c.cancel(errClosed)
				continue
			case <-c.ctx.Done(): // the client was closed, which waits for this goroutine
				c.err = c.explain(context.Cause(c.ctx))
			}
		}
		close(c.over)
		c.cancel(nil)
		return
	}
}

// send sends what Write passes, and the end of this direction.
func (c *Conn) send() {
	for {
		select {
		case data := <-c.outgoing:
			message := &execwirev1.ConnectPortRequest{Message: &execwirev1.ConnectPortRequest_Data{Data: data}}
			if err := c.stream.Send(message); err != nil {
				return // Recv returns the cause
			}
			continue
		case <-c.writeClosed:
			_ = c.stream.CloseSend()
		case <-c.over:
		}
		return
	}
}

// Read implements net.Conn.
func (c *Conn) Read(p []byte) (int, error) {
	if notify.IsClosed(c.closed) {
		return 0, net.ErrClosed
	}
	expired := c.readDeadline.Context().Done()
	if notify.IsClosed(expired) {
		return 0, os.ErrDeadlineExceeded
	}
	c.reading.Lock()
	defer c.reading.Unlock()
	if len(p) == 0 {
		return 0, nil
	}
	if len(c.unread) == 0 {
		if err := c.next(expired); err != nil {
			return 0, err
		}
	}
	n := copy(p, c.unread)
	c.consume(n)
	return n, nil
}

// consume removes data from unread.
func (c *Conn) consume(n int) {
	c.unread = c.unread[n:]
	c.partial.Store(len(c.unread) > 0)
}

// next waits for data. The receiver passes all data before it reports an end.
func (c *Conn) next(expired <-chan struct{}) error {
	select {
	case c.unread = <-c.incoming:
		c.partial.Store(true)
		return nil
	case <-c.end:
		return io.EOF
	case <-c.over:
		if notify.IsClosed(c.end) {
			return io.EOF
		}
		return c.err
	case <-c.closed:
		return net.ErrClosed
	case <-expired:
		return os.ErrDeadlineExceeded
	}
}

// Write implements net.Conn. It blocks while the port does not read.
func (c *Conn) Write(p []byte) (n int, err error) {
	if len(p) == 0 {
		return 0, c.writable(c.writeDeadline.Context().Done())
	}
	for len(p) > 0 {
		piece := p[:min(len(p), pieceBytes)]
		if err := c.pass(bytes.Clone(piece)); err != nil { // a server within this program keeps it
			return n, err
		}
		n += len(piece)
		p = p[len(piece):]
	}
	return n, nil
}

// pass passes data to the sender, which keeps it.
func (c *Conn) pass(data []byte) error {
	expired := c.writeDeadline.Context().Done()
	if err := c.writable(expired); err != nil {
		return err
	}
	select {
	case c.outgoing <- data:
		return nil
	case <-c.over:
	case <-c.closed:
	case <-c.writeClosed:
	case <-expired:
	}
	return c.writable(expired)
}

// writable returns why nothing can be written, or nil.
func (c *Conn) writable(expired <-chan struct{}) error {
	switch {
	case notify.IsClosed(c.closed), notify.IsClosed(c.writeClosed):
		return net.ErrClosed
	case notify.IsClosed(expired):
		return os.ErrDeadlineExceeded
	case notify.IsClosed(c.over):
		return c.err
	}
	return nil
}

// WriteTo implements io.WriterTo. It writes data as it arrived, without a copy.
func (c *Conn) WriteTo(to io.Writer) (n int64, err error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	for {
		if len(c.unread) == 0 {
			if notify.IsClosed(c.closed) {
				return n, net.ErrClosed
			}
			if err := c.next(c.readDeadline.Context().Done()); errors.Is(err, io.EOF) {
				return n, nil
			} else if err != nil {
				return n, err
			}
		}
		written, err := to.Write(c.unread)
		n += int64(written)
		c.consume(written)
		if err != nil {
			return n, err
		}
	}
}

// ReadFrom implements io.ReaderFrom. It sends data as it was read, without a copy.
func (c *Conn) ReadFrom(from io.Reader) (n int64, err error) {
	piece := make([]byte, pieceBytes)
	for {
		got, err := from.Read(piece)
		if got > 0 {
			data := piece[:got]
			if got <= smallBytes {
				data = bytes.Clone(data)
			} else {
				piece = make([]byte, pieceBytes)
			}
			if err := c.pass(data); err != nil {
				return n, err
			}
			n += int64(got)
		}
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}

// CloseWrite ends this direction: the port reads an end of file after what was written. The other
// direction continues. It does not block.
func (c *Conn) CloseWrite() error {
	c.closeWriteOnce.Do(func() { close(c.writeClosed) })
	return nil
}

// SetLinger says what Close does: with 0 it resets the connection, otherwise what was written is
// still delivered. It always returns nil.
func (c *Conn) SetLinger(seconds int) error {
	c.abort.Store(seconds == 0)
	return nil
}

// Close implements net.Conn. It does not block: what was written is delivered in the background,
// within a minute. Data that was or is received and not read resets the connection, as with TCP.
func (c *Conn) Close() error {
	c.closeOnce.Do(func() {
		close(c.closed)
		if c.abort.Load() || c.partial.Load() {
			c.cancel(errClosed)
			return
		}
		_ = c.CloseWrite()
		timer := time.AfterFunc(lingerTimeout, func() { c.cancel(errClosed) })
		context.AfterFunc(c.ctx, func() { timer.Stop() })
	})
	return nil
}

// LocalAddr implements net.Conn. That of a connection that was made is the address of the caller, which
// has no host and port. That of one that was accepted is an address of the server.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr implements net.Conn. It is an address of the server's network.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline implements net.Conn.
func (c *Conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline implements net.Conn.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.setDeadline(c.readDeadline, t) }

// SetWriteDeadline implements net.Conn.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.setDeadline(c.writeDeadline, t) }

func (c *Conn) setDeadline(d *deadline.Deadline, t time.Time) error {
	if notify.IsClosed(c.closed) {
		return net.ErrClosed
	}
	d.Set(t)
	return nil
}

// Caller is the address of the caller's end.
type Caller struct{}

// Network implements net.Addr.
func (Caller) Network() string { return "execwire" }

func (Caller) String() string { return "execwire" }
