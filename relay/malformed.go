package relay

import (
	"log/slog"
	"time"
)

// warnInterval is the least time between two warnings about dropped frames.
const warnInterval = time.Second

// complaints warns about frames that are dropped, as often as is useful. A lock
// protects it.
type complaints struct {
	logger  *slog.Logger
	last    time.Time
	dropped int // frames since then
}

// frame notes that a frame was dropped.
func (c *complaints) frame(now time.Time, why error) {
	c.dropped++
	if !c.last.IsZero() && now.Sub(c.last) < warnInterval {
		return
	}
	c.logger.Warn("dropped a frame of the relay", "why", why, "dropped", c.dropped)
	c.last, c.dropped = now, 0
}
