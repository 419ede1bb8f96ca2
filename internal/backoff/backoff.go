// Package backoff paces attempts to reach somebody.
package backoff

import (
	"cmp"
	"context"
	"math/rand/v2"
	"time"
)

// Defaults of [Backoff].
const (
	DefaultFirst = 100 * time.Millisecond
	DefaultMost  = 2 * time.Second
)

// Backoff says how long to wait before each attempt. Waits double up to the most
// and are cut at random to between a half and all, so that those who wait for
// somebody that comes back do not come at once. The zero value has the defaults.
// It is for one goroutine.
type Backoff struct {
	// First and Most are the shortest and the longest wait before it is cut. 0 is
	// DefaultFirst and DefaultMost.
	First, Most time.Duration

	last time.Duration // before it was cut; 0 at first
}

// Reset makes the next wait a short one again.
func (b *Backoff) Reset() { b.last = 0 }

// Next returns the next wait, at least atLeast.
func (b *Backoff) Next(atLeast time.Duration) time.Duration {
	b.last = min(max(2*b.last, cmp.Or(b.First, DefaultFirst)), cmp.Or(b.Most, DefaultMost))
	return max(b.last/2+rand.N(b.last/2+1), atLeast)
}

// Wait blocks for the next wait, at least atLeast, and reports whether ctx was
// still alive at its end.
func (b *Backoff) Wait(ctx context.Context, atLeast time.Duration) bool {
	return Pause(ctx, b.Next(atLeast))
}

// Pause blocks for a wait and reports whether ctx was still alive at its end.
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
