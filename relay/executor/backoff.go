package executor

import (
	"context"
	"math/rand/v2"
	"time"
)

// backoff paces attempts. It is for one goroutine.
type backoff struct {
	first, most time.Duration
	last        time.Duration // before it was cut at random; 0 at first
}

// reset makes the next wait a short one again.
func (b *backoff) reset() { b.last = 0 }

// next returns the next wait, at least atLeast. Waits double up to the most and
// are cut at random to between a half and all, so that the executors of a hub
// that comes back do not come at once.
func (b *backoff) next(atLeast time.Duration) time.Duration {
	b.last = min(max(2*b.last, b.first), b.most)
	return max(b.last/2+rand.N(b.last/2+1), atLeast)
}

// pause waits and reports whether ctx was still alive at the end.
func pause(ctx context.Context, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
