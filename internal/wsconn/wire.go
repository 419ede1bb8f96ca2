package wsconn

import (
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// wire is what the library takes for the network. It reads through a watch.
// What the library writes are close frames, which wait in the outbox for
// [Conn].Close, so that what the peer asked before can be answered before; what it
// closes stays open until then. Before it is a websocket there is nothing to read,
// and closing closes.
type wire struct {
	net.Conn // what bytes go through, TLS if there is TLS; deadlines work on it
	out      *outbox
	begun    atomic.Bool // it is a websocket

	reading sync.Mutex // held while the socket is being read
	in      *watch     // guarded by reading
	closed  bool       // guarded by reading
}

func newWire(conn net.Conn, in io.Reader, out io.Writer, client bool, o Options) *wire {
	return &wire{
		Conn: conn,
		out:  newOutbox(out, client),
		in:   newWatch(in, o.FrameBytes, o.MessageBytes),
	}
}

// Read implements io.Reader for the library.
func (w *wire) Read(p []byte) (int, error) {
	if !w.begun.Load() {
		return 0, io.EOF
	}
	w.reading.Lock()
	defer w.reading.Unlock()
	if w.closed {
		return 0, net.ErrClosed
	}
	return w.in.Read(p)
}

// Write implements io.Writer for the library. p is one whole close frame.
func (w *wire) Write(p []byte) (int, error) {
	w.out.promise(slices.Clone(p))
	return len(p), nil
}

// Close implements io.Closer for the library.
func (w *wire) Close() error {
	if !w.begun.Load() {
		return w.Conn.Close()
	}
	return nil
}

// failure returns what ended reading, nil if nothing did.
func (w *wire) failure() error {
	w.reading.Lock()
	defer w.reading.Unlock()
	return w.in.err
}

// parted reports whether the last that was read is a close frame.
func (w *wire) parted() bool {
	w.reading.Lock()
	defer w.reading.Unlock()
	return w.in.parted()
}

// past is a deadline that makes what waits for it return at once.
var past = time.Unix(1, 0)

// endReading makes a Read under way return, and refuses all that follow.
func (w *wire) endReading() {
	_ = w.SetReadDeadline(past)
	w.reading.Lock()
	defer w.reading.Unlock()
	w.closed = true
	if errors.Is(w.in.err, os.ErrDeadlineExceeded) {
		w.in.err = nil // it was this one
	}
}

// drain throws away what the peer sends until it parts, ends its side, or the
// read deadline has come: closing a socket with unread bytes would reset the
// connection, and the peer would lose what it has not read. Reading has ended.
func (w *wire) drain() {
	w.reading.Lock()
	defer w.reading.Unlock()
	b := make([]byte, drainBytes)
	for !w.in.parted() {
		if _, err := w.in.Read(b); err != nil {
			break
		}
	}
	if _, ok := errors.AsType[*TooLargeError](w.in.err); ok {
		_, _ = io.CopyBuffer(io.Discard, onlyReader{w.in.from}, b)
	}
}

// drainBytes is how much is thrown away at once.
const drainBytes = 16 << 10

// onlyReader hides everything but Read, or the copy would choose another way.
type onlyReader struct{ io.Reader }
