package eventlog

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testContext is a guard against hanging, not an expectation about time.
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
func tryNext(t *testing.T, c cursor, maxBytes int) Batch {
	t.Helper()
	b, ok, err := c.TryNext(maxBytes)
	if err != nil || !ok {
		t.Fatalf("TryNext = %v, %v; want a batch", ok, err)
	}
	return b
}

type cursor interface {
	Next(context.Context, int) (Batch, error)
	TryNext(int) (Batch, bool, error)
}

// text is what a batch says, a letter per stream and "!" or "." for the rest.
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

// write lets a stream's writer say s through its buffer, as a process does.
func write(t *testing.T, w *Writer, s string) {
	t.Helper()
	for len(s) > 0 {
		buf := w.Buffer()
		if buf == nil {
			t.Fatalf("no buffer with %d bytes to write", len(s))
		}
		n := copy(buf, s)
		w.Commit(n)
		s = s[n:]
	}
}
