// Package observe is how the daemon tells what it does: its log, and later its
// metrics, traces and audit. Nothing here ever sees a command, an environment,
// a file's content or a secret.
package observe

import (
	"fmt"
	"io"
	"log/slog"
)

// Format is how log lines are written.
type Format string

// The formats.
const (
	// Text is one line of key=value pairs, for people.
	Text Format = "text"
	// JSON is one JSON object a line, for machines.
	JSON Format = "json"
)

// NewLogger returns a logger that writes to w what is at least as important as
// level ("debug", "info", "warn" or "error"). It is safe for concurrent use.
func NewLogger(w io.Writer, format Format, level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("log level %q is not known: use debug, info, warn or error", level)
	}
	options := &slog.HandlerOptions{Level: l}
	switch format {
	case Text:
		return slog.New(slog.NewTextHandler(w, options)), nil
	case JSON:
		return slog.New(slog.NewJSONHandler(w, options)), nil
	default:
		return nil, fmt.Errorf("log format %q is not known: use text or json", format)
	}
}
