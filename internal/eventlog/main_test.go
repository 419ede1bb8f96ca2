package eventlog

import (
	"context"
	"flag"
	"io"
	"testing"
	"time"

	"github.com/execwire/execwire/internal/leakcheck"
)

// TestMain makes each random run of TestLog_MatchesModel long enough for blocks to grow and for
// streams to evict each other.
func TestMain(m *testing.M) {
	if err := flag.Set("rapid.steps", "150"); err != nil {
		panic(err)
	}
	leakcheck.Main(m)
}

// testContext returns a context that bounds how long a test can hang.
func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// tryNext returns the next batch or fails the test when there is none.
func tryNext(t *testing.T, c nexter, maxBytes int) Batch {
	t.Helper()
	b, ok, err := c.TryNext(maxBytes)
	if err != nil || !ok {
		t.Fatalf("TryNext = %v, %v; want a batch", ok, err)
	}
	return b
}

// noTime is for tests in which the time of output does not matter.
var noTime time.Time

type nexter interface {
	Next(context.Context, int) (Batch, error)
	TryNext(int) (Batch, bool, error)
}

// text formats a batch: a letter per stream with its output, "!" for exited, "." for closed.
func text(b Batch) string {
	var s string
	for _, e := range b.Events {
		switch e.Kind {
		case Exited:
			s += "!"
		case Closed:
			s += "."
		default:
			s += string("?oet"[e.Stream]) + "(" + string(e.Data) + ")"
		}
	}
	return s
}

// write writes s through the buffer of a stream's writer, as a process does.
func write(t *testing.T, w *Writer, s string) {
	t.Helper()
	for len(s) > 0 {
		buf := w.Buffer()
		if buf == nil {
			t.Fatalf("no buffer with %d bytes to write", len(s))
		}
		n := copy(buf, s)
		w.Commit(n, noTime)
		s = s[n:]
	}
}

// untilWaiting polls until at least n goroutines wait, or none if n is 0.
func untilWaiting(t *testing.T, l *Log, ws *waiters, n int) {
	t.Helper()
	ctx := testContext(t)
	for ctx.Err() == nil {
		l.mu.Lock()
		have := len(*ws)
		l.mu.Unlock()
		if have == n || n > 0 && have > n {
			return
		}
		time.Sleep(100 * time.Microsecond)
	}
	t.Fatalf("timeout waiting for %d goroutines", n)
}

// flood writes as much as the writer accepts, and returns the number of bytes.
func flood(w *Writer, most int) int {
	written := 0
	for written < most {
		buf := w.Buffer()
		if buf == nil {
			break
		}
		n := min(len(buf), most-written)
		w.Commit(n, noTime)
		written += n
	}
	return written
}

// drain reads the available batches and returns the number of their output bytes.
func drain(t *testing.T, c nexter) (bytes int, lastSeq uint64) {
	t.Helper()
	for {
		b, ok, err := c.TryNext(0)
		if err != nil && err != io.EOF {
			t.Fatal(err)
		}
		if !ok {
			return bytes, lastSeq
		}
		for _, e := range b.Events {
			bytes += len(e.Data)
			lastSeq = e.Seq
		}
	}
}

// Append adds output without a writer. It ignores the window of an owner.
func (l *Log) Append(id Stream, data []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stream(id)
	for len(data) > 0 {
		n := min(len(data), l.limits.chunkBytes())
		b := l.blocks.alloc(n)
		b.used = copy(b.buf, data[:n])
		l.appendOutput(s, b, 0, n)
		if l.window.paced {
			l.window.countUnacked(s, n, 1)
		}
		l.blocks.unref(b)
		data = data[n:]
		l.settle()
	}
}
