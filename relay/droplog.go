package relay

import (
	"log/slog"
	"time"
)

// warnInterval is the minimum time between two warnings about dropped frames.
const warnInterval = time.Second

// dropLog logs dropped frames, rate-limited. The owner's lock guards it.
type dropLog struct {
	logger  *slog.Logger
	last    time.Time
	dropped int // frames since the last warning
}

// add records that a frame was dropped.
func (d *dropLog) add(now time.Time, why error) {
	d.dropped++
	if !d.last.IsZero() && now.Sub(d.last) < warnInterval {
		return
	}
	d.logger.Warn("dropped a relay frame", "why", why, "dropped", d.dropped)
	d.last, d.dropped = now, 0
}
