package client

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	retryFirst = 100 * time.Millisecond
	retryMost  = 2 * time.Second
)

// retryBackoff paces attempts to reach a server. The zero value is ready.
type retryBackoff struct {
	next time.Duration
}

// reset makes the next wait a short one again.
func (b *retryBackoff) reset() { b.next = 0 }

// wait blocks for the next interval, at least for atLeast, and reports whether
// ctx was still alive at its end. Intervals double up to retryMost and are cut
// at random to between a half and all, so that the clients of a server that
// comes back do not come at once.
func (b *retryBackoff) wait(ctx context.Context, atLeast time.Duration) bool {
	b.next = min(max(2*b.next, retryFirst), retryMost)
	delay := b.next/2 + rand.N(b.next/2)
	timer := time.NewTimer(max(delay, atLeast))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
