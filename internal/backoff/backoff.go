// Package backoff computes delays between attempts.
package backoff

import (
	"cmp"
	"context"
	"math/rand/v2"
	"time"
)

// Defaults of [Backoff].
const (
	DefaultMin = 100 * time.Millisecond
	DefaultMax = 2 * time.Second
)

// Backoff computes exponential delays with jitter: they double up to Max, and
// each is randomized between a half and all, so that clients do not reconnect
// simultaneously. The zero value uses the defaults. It is for one goroutine.
type Backoff struct {
	// Min and Max bound the delay before randomization. 0 means DefaultMin and
	// DefaultMax.
	Min, Max time.Duration

	last time.Duration // before randomization; 0 at first
}

// Reset restarts with Min.
func (b *Backoff) Reset() { b.last = 0 }

// Next returns the next delay, at least atLeast.
func (b *Backoff) Next(atLeast time.Duration) time.Duration {
	b.last = min(max(2*b.last, cmp.Or(b.Min, DefaultMin)), cmp.Or(b.Max, DefaultMax))
	return max(b.last/2+rand.N(b.last/2+1), atLeast)
}

// Wait sleeps for the next delay, at least atLeast, and reports whether ctx is
// still alive.
func (b *Backoff) Wait(ctx context.Context, atLeast time.Duration) bool {
	return Pause(ctx, b.Next(atLeast))
}

// Pause sleeps for a delay and reports whether ctx is still alive.
func Pause(ctx context.Context, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
