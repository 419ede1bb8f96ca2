package executor

import "time"

// Backoff is what paces attempts.
type Backoff struct{ backoff }

// NewBackoff returns one.
func NewBackoff(first, most time.Duration) *Backoff {
	return &Backoff{backoff{first: first, most: most}}
}

// Next returns the next wait.
func (b *Backoff) Next(atLeast time.Duration) time.Duration { return b.next(atLeast) }

// Reset makes the next wait a short one again.
func (b *Backoff) Reset() { b.reset() }

// SetClock gives an agent identity another clock.
func SetClock(c Credentials, now func() time.Time) { c.(*identity).now = now }
