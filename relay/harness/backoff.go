package harness

import (
	"context"
	"math/rand/v2"
	"time"
)

// backoff paces attempts.
type backoff struct {
	first, most time.Duration
	next        time.Duration
}

// reset makes the next wait a short one again.
func (b *backoff) reset() { b.next = 0 }

// wait blocks for the next interval, and reports whether ctx was still alive at
// its end.
func (b *backoff) wait(ctx context.Context) bool {
	b.next = min(max(2*b.next, b.first), b.most)
	timer := time.NewTimer(b.next/2 + rand.N(b.next/2+1))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
