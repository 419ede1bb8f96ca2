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
	// maxKinds is how many kinds of lines are told apart in an interval; all
	// further ones are one.
	maxKinds = 256
	// codeKey is the attribute of a line about a call which says how that ended.
	// Failures of one sort must not have those of another left out.
	codeKey = "grpc.code"
)

// lineKind is what the lines of it have in common.
type lineKind struct {
	level         slog.Level
	message, code string
}

// lineCount is that of one kind in the interval that goes on.
type lineCount struct {
	began            time.Time
	written, leftOut int
}

// lineCounts bound the lines of each kind: clients cause them, and can cause any
// number.
type lineCounts struct {
	most int
	log  slog.Handler

	mu     sync.Mutex
	counts map[lineKind]*lineCount // guarded by mu
}

// sparing is a handler that leaves out lines of which there are too many, and
// says how many those were.
type sparing struct {
	slog.Handler
	counts *lineCounts
}

// newSparing returns a handler that hands on at most so many lines of one kind
// in an interval. Lines of the level debug are all handed on: who wants them
// wants them all.
func newSparing(to slog.Handler, most int) slog.Handler {
	return &sparing{Handler: to, counts: &lineCounts{most: most, log: to, counts: map[lineKind]*lineCount{}}}
}

// Handle implements slog.Handler.
func (s *sparing) Handle(ctx context.Context, line slog.Record) error {
	if line.Level > slog.LevelDebug && !s.counts.admits(kindOf(line)) {
		return nil
	}
	return s.Handler.Handle(ctx, line)
}

// WithAttrs implements slog.Handler.
func (s *sparing) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &sparing{Handler: s.Handler.WithAttrs(attrs), counts: s.counts}
}

// WithGroup implements slog.Handler.
func (s *sparing) WithGroup(name string) slog.Handler {
	return &sparing{Handler: s.Handler.WithGroup(name), counts: s.counts}
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

// admits counts a line and reports whether it is to be written.
func (c *lineCounts) admits(kind lineKind) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	count, known := c.counts[kind]
	if !known && len(c.counts) >= maxKinds {
		kind = lineKind{level: kind.level, message: "of further kinds"}
		count, known = c.counts[kind]
	}
	if !known {
		count = &lineCount{began: time.Now()}
		c.counts[kind] = count
		time.AfterFunc(LinesInterval, func() { c.conclude(kind) })
	}
	if count.written < c.most {
		count.written++
		return true
	}
	count.leftOut++
	return false
}

// conclude ends the interval of a kind, and says what was left out in it.
func (c *lineCounts) conclude(kind lineKind) {
	c.mu.Lock()
	count := c.counts[kind] // which this alone forgets
	delete(c.counts, kind)
	c.mu.Unlock()
	if count.leftOut == 0 {
		return
	}
	line := slog.NewRecord(time.Now(), kind.level, "lines were left out", 0)
	line.AddAttrs(slog.Int("left_out", count.leftOut), slog.String("of", kind.message), slog.Time("since", count.began))
	if kind.code != "" {
		line.AddAttrs(slog.String(codeKey, kind.code))
	}
	_ = c.log.Handle(context.Background(), line) // which is all that can be done for it
}
