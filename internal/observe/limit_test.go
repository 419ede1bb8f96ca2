package observe

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// written is what a logger has written.
type written struct {
	mu   sync.Mutex
	text strings.Builder
}

func (w *written) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(p)
}

// take returns what was written since.
func (w *written) take() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.text.Reset()
	return w.text.String()
}

// spareLog returns a logger that leaves out, and what it has written.
func spareLog(t *testing.T, most int) (*slog.Logger, *written) {
	t.Helper()
	out := new(written)
	logger, err := NewLogger(out, Text, "debug", most)
	if err != nil {
		t.Fatal(err)
	}
	return logger, out
}

// pass lets the interval end.
func pass() {
	time.Sleep(LinesInterval) // of the bubble
	synctest.Wait()
}

// A flood of lines is cut off, whoever of one family of loggers writes them, and
// it is said how many are missing.
func TestAFloodOfLinesIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger, out := spareLog(t, 10)
		var writing sync.WaitGroup
		for i := range 4 {
			writing.Go(func() {
				own := logger.With("peer", i)
				for range 250 {
					own.Info("a connection was lost")
				}
			})
		}
		writing.Wait()
		logger.Info("something else")
		said := out.take()
		if lines := strings.Count(said, "a connection was lost"); lines != 10 {
			t.Errorf("%d of 1000 lines were written", lines)
		}
		if !strings.Contains(said, "something else") || strings.Contains(said, "suppressed") {
			t.Errorf("the log says %s", said)
		}
		pass()
		if said := out.take(); strings.Count(said, "\n") != 1 || !strings.Contains(said, `level=INFO msg="log lines were suppressed" suppressed=990 of="a connection was lost"`) {
			t.Errorf("the log says %s", said)
		}
		logger.Info("a connection was lost")
		pass()
		if said := out.take(); strings.Count(said, "\n") != 1 || !strings.Contains(said, "a connection was lost") {
			t.Errorf("after the flood the log says %s", said)
		}
	})
}

// Lines with other levels and other codes are of other kinds, and what is for
// finding faults is written whole.
func TestAFloodOfLinesHidesNoOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger, out := spareLog(t, 2)
		for range 5 {
			logger.Info("finished call", "grpc.code", "NotFound")
			logger.Debug("finished call", "grpc.code", "OK")
		}
		logger.Info("finished call", "grpc.code", "Unauthenticated")
		logger.Error("finished call", "grpc.code", "NotFound")
		said := out.take()
		for part, want := range map[string]int{"level=INFO msg=\"finished call\" grpc.code=NotFound": 2, "code=OK": 5, "Unauthenticated": 1, "level=ERROR": 1} {
			if got := strings.Count(said, part); got != want {
				t.Errorf("%d lines have %q, want %d: %s", got, part, want, said)
			}
		}
		pass()
		if said := out.take(); strings.Count(said, "\n") != 1 || !strings.Contains(said, "suppressed=3") || !strings.Contains(said, "grpc.code=NotFound") {
			t.Errorf("the log says %s", said)
		}
	})
}

// Kinds are bounded, too: those that are too many are one, and none is kept.
func TestKindsOfLinesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger, out := spareLog(t, 1)
		for i := range 3 * maxKinds {
			logger.Info(fmt.Sprintf("kind %d", i))
		}
		if lines := strings.Count(out.take(), "kind "); lines != maxKinds+1 {
			t.Errorf("%d lines were written", lines)
		}
		pass()
		if said := out.take(); !strings.Contains(said, fmt.Sprintf("suppressed=%d of=\"other kinds\"", 2*maxKinds-1)) {
			t.Errorf("the log says %s", said[max(0, len(said)-500):])
		}
		if kept := len(logger.Handler().(*limitingHandler).counts.counts); kept != 0 {
			t.Errorf("%d kinds are remembered", kept)
		}
	})
}

func TestZeroLeavesNothingOut(t *testing.T) {
	logger, out := spareLog(t, 0)
	for range 5000 {
		logger.Info("a connection was lost")
	}
	if lines := strings.Count(out.take(), "\n"); lines != 5000 {
		t.Errorf("%d of 5000 lines were written", lines)
	}
}

func TestANegativeBoundIsRefused(t *testing.T) {
	if _, err := NewLogger(io.Discard, Text, "info", -1); err == nil || !strings.Contains(err.Error(), "0 for all") {
		t.Errorf("a bound of -1 lines: %v", err)
	}
}
