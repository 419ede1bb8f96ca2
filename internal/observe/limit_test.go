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

// written collects the output of a logger.
type written struct {
	mu   sync.Mutex
	text strings.Builder
}

func (w *written) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(p)
}

// take returns the output since the last call.
func (w *written) take() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.text.Reset()
	return w.text.String()
}

// newLimitedLog returns a logger with a limit of lines, and its output.
func newLimitedLog(t *testing.T, most int) (*slog.Logger, *written) {
	t.Helper()
	out := new(written)
	logger, err := NewLogger(out, "text", "debug", most)
	if err != nil {
		t.Fatal(err)
	}
	return logger, out
}

// endInterval waits for the end of the interval.
func endInterval() {
	time.Sleep(LinesInterval) // in the time of the synctest bubble
	synctest.Wait()
}

// Repeated lines are limited over all loggers derived from one, and the number of suppressed
// lines is logged.
func TestLimit_RepeatedLines_AreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger, out := newLimitedLog(t, 10)
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
		log := out.take()
		if lines := strings.Count(log, "a connection was lost"); lines != 10 {
			t.Errorf("%d of 1000 lines were written", lines)
		}
		if !strings.Contains(log, "something else") || strings.Contains(log, "suppressed") {
			t.Errorf("the log is %s", log)
		}
		endInterval()
		if log := out.take(); strings.Count(log, "\n") != 1 || !strings.Contains(log, `level=INFO msg="log lines were suppressed" suppressed=990 of="a connection was lost"`) {
			t.Errorf("the log is %s", log)
		}
		logger.Info("a connection was lost")
		endInterval()
		if log := out.take(); strings.Count(log, "\n") != 1 || !strings.Contains(log, "a connection was lost") {
			t.Errorf("after the flood the log is %s", log)
		}
	})
}

// Lines with other levels or codes are other kinds, and debug lines are not limited.
func TestLimit_OtherKinds_AreWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger, out := newLimitedLog(t, 2)
		for range 5 {
			logger.Info("finished call", "grpc.code", "NotFound")
			logger.Debug("finished call", "grpc.code", "OK")
		}
		logger.Info("finished call", "grpc.code", "Unauthenticated")
		logger.Error("finished call", "grpc.code", "NotFound")
		log := out.take()
		for part, want := range map[string]int{"level=INFO msg=\"finished call\" grpc.code=NotFound": 2, "code=OK": 5, "Unauthenticated": 1, "level=ERROR": 1} {
			if got := strings.Count(log, part); got != want {
				t.Errorf("%d lines have %q, want %d: %s", got, part, want, log)
			}
		}
		endInterval()
		if log := out.take(); strings.Count(log, "\n") != 1 || !strings.Contains(log, "suppressed=3") || !strings.Contains(log, "grpc.code=NotFound") {
			t.Errorf("the log is %s", log)
		}
	})
}

// The number of kinds is bounded: all others are counted as one. No kind is kept after the interval.
func TestLimit_Kinds_AreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger, out := newLimitedLog(t, 1)
		for i := range 3 * maxKinds {
			logger.Info(fmt.Sprintf("kind %d", i))
		}
		if lines := strings.Count(out.take(), "kind "); lines != maxKinds+1 {
			t.Errorf("%d lines were written", lines)
		}
		endInterval()
		if log := out.take(); !strings.Contains(log, fmt.Sprintf("suppressed=%d of=\"other kinds\"", 2*maxKinds-1)) {
			t.Errorf("the log is %s", log[max(0, len(log)-500):])
		}
		if kept := len(logger.Handler().(*limitingHandler).counts.counts); kept != 0 {
			t.Errorf("%d kinds are remembered", kept)
		}
	})
}

func TestLimit_Zero_WritesAll(t *testing.T) {
	logger, out := newLimitedLog(t, 0)
	for range 5000 {
		logger.Info("a connection was lost")
	}
	if lines := strings.Count(out.take(), "\n"); lines != 5000 {
		t.Errorf("%d of 5000 lines were written", lines)
	}
}

func TestNewLogger_NegativeLimit_Fails(t *testing.T) {
	if _, err := NewLogger(io.Discard, "text", "info", -1); err == nil || !strings.Contains(err.Error(), "0 for all") {
		t.Errorf("a bound of -1 lines: %v", err)
	}
}
