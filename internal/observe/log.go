// Package observe writes the log of a program. Log lines never contain a command, an
// environment, a file's content or a secret.
package observe

import (
	"fmt"
	"io"
	"log/slog"
)

// DefaultLines is how many lines of one kind are written in [LinesInterval].
const DefaultLines = 100

// NewLogger returns a logger that writes lines of at least the given level ("debug",
// "info", "warn" or "error") to w, as "text", one line of key=value pairs, or "json",
// one object a line. It writes at most this many lines of one kind, that is, with the
// same message, level and status code of a call, in [LinesInterval], and then a line
// with the number of the others; 0 writes all. Debug lines are not limited. The logger
// is safe for concurrent use. Counts of an interval in which the program ends are lost.
func NewLogger(w io.Writer, format, level string, lines int) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("log level %q is not known: use debug, info, warn or error", level)
	}
	if lines < 0 {
		return nil, fmt.Errorf("the log cannot have %d lines of one kind: use 1 or more, or 0 for all", lines)
	}
	options := &slog.HandlerOptions{Level: l}
	var handler slog.Handler
	switch format {
	case "text":
		handler = slog.NewTextHandler(w, options)
	case "json":
		handler = slog.NewJSONHandler(w, options)
	default:
		return nil, fmt.Errorf("log format %q is not known: use text or json", format)
	}
	if lines > 0 {
		handler = newLimitingHandler(handler, lines)
	}
	return slog.New(handler), nil
}
