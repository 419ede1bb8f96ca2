package observe

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	// LinesInterval is the time over which lines of one kind are counted.
	LinesInterval = 10 * time.Second
	// maxKinds is how many kinds of lines are counted in an interval; all further
	// ones count as one.
	maxKinds = 256
	// codeKey is the attribute with the status code of a call. It is part of the
	// kind, so that frequent failures do not suppress others.
	codeKey = "grpc.code"
)

// lineKind identifies a kind of lines.
type lineKind struct {
	level         slog.Level
	message, code string
}

// lineCount counts the lines of a kind in the current interval.
type lineCount struct {
	began               time.Time
	written, suppressed int
}

// lineCounts limits the lines of each kind, because clients can cause any number.
type lineCounts struct {
	limit int
	log   slog.Handler

	mu     sync.Mutex
	counts map[lineKind]*lineCount // guarded by mu
}

// limitingHandler is a handler that suppresses lines beyond a limit, and logs how
// many it suppressed.
type limitingHandler struct {
	slog.Handler
	counts *lineCounts
}

// newLimitingHandler returns a handler that passes on at most this many lines of one
// kind in an interval. It does not limit lines of level debug.
func newLimitingHandler(to slog.Handler, most int) slog.Handler {
	return &limitingHandler{Handler: to, counts: &lineCounts{limit: most, log: to, counts: map[lineKind]*lineCount{}}}
}

// Handle implements slog.Handler.
func (s *limitingHandler) Handle(ctx context.Context, line slog.Record) error {
	if line.Level > slog.LevelDebug && !s.counts.allows(kindOf(line)) {
		return nil
	}
	return s.Handler.Handle(ctx, line)
}

// WithAttrs implements slog.Handler.
func (s *limitingHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &limitingHandler{Handler: s.Handler.WithAttrs(attrs), counts: s.counts}
}

// WithGroup implements slog.Handler.
func (s *limitingHandler) WithGroup(name string) slog.Handler {
	return &limitingHandler{Handler: s.Handler.WithGroup(name), counts: s.counts}
}

func kindOf(line slog.Record) lineKind {
	kind := lineKind{level: line.Level, message: line.Message}
	line.Attrs(func(attr slog.Attr) bool {
		if attr.Key == codeKey {
			kind.code = attr.Value.String()
		}
		return attr.Key != codeKey
	})
	return kind
}

// allows counts a line and reports whether to write it.
func (c *lineCounts) allows(kind lineKind) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	count, known := c.counts[kind]
	if !known && len(c.counts) >= maxKinds {
		kind = lineKind{level: kind.level, message: "other kinds"}
		count, known = c.counts[kind]
	}
	if !known {
		count = &lineCount{began: time.Now()}
		c.counts[kind] = count
		time.AfterFunc(LinesInterval, func() { c.endInterval(kind) })
	}
	if count.written < c.limit {
		count.written++
		return true
	}
	count.suppressed++
	return false
}

// endInterval ends the interval of a kind, and logs how many lines were suppressed.
func (c *lineCounts) endInterval(kind lineKind) {
	c.mu.Lock()
	count := c.counts[kind] // only this function removes it
	delete(c.counts, kind)
	c.mu.Unlock()
	if count.suppressed == 0 {
		return
	}
	line := slog.NewRecord(time.Now(), kind.level, "log lines were suppressed", 0)
	line.AddAttrs(slog.Int("suppressed", count.suppressed), slog.String("of", kind.message), slog.Time("since", count.began))
	if kind.code != "" {
		line.AddAttrs(slog.String(codeKey, kind.code))
	}
	_ = c.log.Handle(context.Background(), line) // there is nowhere to report a failure
}
