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

// wire is the net.Conn that the library uses. Reads go through a frameScanner.
// The library writes only close frames; they are kept in the outbox until
// [Conn].Close, so that pending responses can be sent first. Closing by the
// library has no effect after the upgrade. Before the upgrade there is nothing to
// read, and Close closes the connection.
type wire struct {
	net.Conn // the connection, TLS if in use; supports deadlines
	outbox   *outbox
	upgraded atomic.Bool // the handshake is complete

	readMu  sync.Mutex    // held while reading from the socket
	scanner *frameScanner // guarded by readMu
	closed  bool          // guarded by readMu
}

func newWire(conn net.Conn, in io.Reader, out io.Writer, client bool, o Options) *wire {
	return &wire{
		Conn:    conn,
		outbox:  newOutbox(out, client),
		scanner: newFrameScanner(in, o.FrameBytes, o.MessageBytes),
	}
}

// Read implements io.Reader for the library.
func (w *wire) Read(p []byte) (int, error) {
	if !w.upgraded.Load() {
		return 0, io.EOF
	}
	w.readMu.Lock()
	defer w.readMu.Unlock()
	if w.closed {
		return 0, net.ErrClosed
	}
	return w.scanner.Read(p)
}

// Write implements io.Writer for the library. p is one complete close frame.
func (w *wire) Write(p []byte) (int, error) {
	w.outbox.setClose(slices.Clone(p))
	return len(p), nil
}

// Close implements io.Closer for the library.
func (w *wire) Close() error {
	if !w.upgraded.Load() {
		return w.Conn.Close()
	}
	return nil
}

// readErr returns the error that ended reading, or nil.
func (w *wire) readErr() error {
	w.readMu.Lock()
	defer w.readMu.Unlock()
	return w.scanner.err
}

// closeReceived reports whether the last frame read is a close frame.
func (w *wire) closeReceived() bool {
	w.readMu.Lock()
	defer w.readMu.Unlock()
	return w.scanner.closeReceived()
}

// pastTime is a deadline that expires pending operations.
var pastTime = time.Unix(1, 0)

// stopReading interrupts a Read in progress and fails all that follow.
func (w *wire) stopReading() {
	_ = w.SetReadDeadline(pastTime)
	w.readMu.Lock()
	defer w.readMu.Unlock()
	w.closed = true
	if errors.Is(w.scanner.err, os.ErrDeadlineExceeded) {
		w.scanner.err = nil // caused by stopReading
	}
}

// drain discards data from the peer until its close frame, the end of its side,
// or the read deadline: closing a socket with unread data would reset the
// connection, and the peer would lose data that it has not read. Reading has been
// stopped.
func (w *wire) drain() {
	w.readMu.Lock()
	defer w.readMu.Unlock()
	b := make([]byte, drainBytes)
	for !w.scanner.closeReceived() {
		if _, err := w.scanner.Read(b); err != nil {
			break
		}
	}
	if _, ok := errors.AsType[*TooLargeError](w.scanner.err); ok {
		_, _ = io.CopyBuffer(io.Discard, onlyReader{w.scanner.src}, b)
	}
}

// drainBytes is the buffer size for draining.
const drainBytes = 16 << 10

// onlyReader hides WriteTo, so that CopyBuffer uses the buffer.
type onlyReader struct{ io.Reader }
