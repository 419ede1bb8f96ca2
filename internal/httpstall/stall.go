// Package httpstall bounds how long the client of an HTTP request may delay the next part
// of its body or of the response, instead of the time of the whole request.
package httpstall

import (
	"context"
	"io"
	"math"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

// Writer is a ResponseWriter whose writes may each take a limited time, however long the
// response is.
type Writer struct {
	http.ResponseWriter
	*deadlines
}

// body is a request body whose reads may each take a limited time.
type body struct {
	io.ReadCloser
	*deadlines
}

// maxPiece is how much of a file is sent within one limit of time.
const maxPiece = 4 << 20

// Bound lets a request take any time as long as each read of its body and each
// write of its response takes at most limit, and returns writer and request for the
// handler. A body that was read to its end, and a handler that does neither, are not
// limited in time. The handler ends by [Writer.Extend].
func Bound(w http.ResponseWriter, r *http.Request, limit time.Duration) (*Writer, *http.Request) {
	d := &deadlines{control: http.NewResponseController(w), limit: limit}
	_ = d.control.SetWriteDeadline(time.Time{})                          // supported by every server; fails for recorders in tests
	r = r.WithContext(context.WithValue(r.Context(), deadlinesKey{}, d)) // a copy
	if r.Body == nil || r.Body == http.NoBody {
		_ = d.control.SetReadDeadline(time.Time{})
	} else {
		r.Body = &body{ReadCloser: r.Body, deadlines: d}
	}
	return &Writer{ResponseWriter: w, deadlines: d}, r
}

// deadlinesKey is the context key of the deadlines of a request.
type deadlinesKey struct{}

// Interrupt makes pending reads and writes of a request of [Bound] fail, and later ones.
// The context is that of the request, or derived from it. It does not block.
func Interrupt(ctx context.Context) {
	d, ok := ctx.Value(deadlinesKey{}).(*deadlines)
	if !ok {
		return
	}
	d.stopReading()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.writeStopped = true
	_ = d.control.SetWriteDeadline(past)
}

// past is a deadline that is over.
var past = time.Unix(1, 0)

// deadlines are those of the connection of a request.
type deadlines struct {
	control *http.ResponseController
	limit   time.Duration

	mu           sync.Mutex
	readStopped  bool // guarded by mu
	writeStopped bool // guarded by mu
	lifted       bool // guarded by mu; responses are not limited
}

// beginRead gives the next read its time.
func (d *deadlines) beginRead() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.readStopped {
		_ = d.control.SetReadDeadline(time.Now().Add(d.limit))
	}
}

// endBody is called after the last read.
func (d *deadlines) endBody() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.readStopped {
		// The server reads on, to notice that the client disconnects.
		_ = d.control.SetReadDeadline(time.Time{})
	}
}

// Extend gives the next write its time: also what the server sends after the handler.
func (d *deadlines) Extend() {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.writeStopped:
	case d.lifted:
		_ = d.control.SetWriteDeadline(time.Time{})
	default:
		_ = d.control.SetWriteDeadline(time.Now().Add(d.limit))
	}
}

// LiftStallLimit lets the client take any time for each part of the response, as long as
// it is there.
func (d *deadlines) LiftStallLimit() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lifted = true
}

func (d *deadlines) stopReading() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.readStopped = true
	_ = d.control.SetReadDeadline(past)
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	b.beginRead()
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.endBody()
	}
	return n, err
}

// Unwrap is for [http.ResponseController].
func (w *Writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Write implements io.Writer.
func (w *Writer) Write(p []byte) (int, error) {
	w.Extend()
	return w.ResponseWriter.Write(p)
}

// StopReading makes the pending read of the body and later ones fail. The connection
// serves no further request. The handler's goroutine calls it.
//
// The server closes the connection after the response. If the client still sends, that
// would be a reset, which may overtake the response, unless the server waits as it does
// after a body that is too large.
func (w *Writer) StopReading() {
	_, _ = http.MaxBytesReader(w.ResponseWriter, io.NopCloser(strings.NewReader("x")), 0).Read(make([]byte, 1))
	w.stopReading()
}

// FlushError is for [http.ResponseController].
func (w *Writer) FlushError() error {
	w.Extend()
	return w.control.Flush()
}

// Flush implements http.Flusher.
func (w *Writer) Flush() { _ = w.FlushError() } // the client is gone

// ReadFrom implements io.ReaderFrom: the server sends files without copying them. Package
// net recognizes a file, or an io.LimitedReader of one, and not one of another. Waiting for
// another reader is not limited in time; each write is.
func (w *Writer) ReadFrom(from io.Reader) (sent int64, err error) {
	left, ok := from.(*io.LimitedReader)
	if !ok {
		left = &io.LimitedReader{R: from, N: math.MaxInt64}
	}
	if _, ok := left.R.(*os.File); !ok {
		return io.Copy(struct{ io.Writer }{w}, from)
	}
	for left.N > 0 {
		w.Extend()
		piece := min(left.N, maxPiece)
		n, err := io.Copy(w.ResponseWriter, &io.LimitedReader{R: left.R, N: piece})
		sent, left.N = sent+n, left.N-n
		if err != nil || n < piece {
			return sent, err
		}
	}
	return sent, nil
}
