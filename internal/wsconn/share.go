package wsconn

import (
	"sync/atomic"
	"time"
)

// shareEnded is the size of a share that has ended.
const shareEnded = -1

// Share is the part of a [Budget] that one holder has. All methods may be called
// concurrently. The zero value is unlimited.
type Share struct {
	budget    *Budget
	principal string
	evict     func(*BudgetError) // may be nil

	size  atomic.Int64 // what counts; changed with Budget.mu held
	since time.Time    // guarded by Budget.mu; when the share last was empty or shrank
}

// Resize changes the size of the share. Shrinking always succeeds. It returns
// false, and changes nothing, if the budget has not enough left, or the share has
// ended or was evicted. It never blocks.
func (s *Share) Resize(bytes int64) bool {
	counted := max(bytes-OwnBytes, 0)
	if s.budget == nil || s.size.Load() == counted {
		return true
	}
	evicted, ok := s.budget.resize(s, counted)
	for _, victim := range evicted {
		victim.evict(s.budget.newError(true))
	}
	return ok
}

// End releases the share for good.
func (s *Share) End() {
	if s.budget == nil {
		return
	}
	s.budget.mu.Lock()
	defer s.budget.mu.Unlock()
	s.budget.set(s, 0)
	s.size.Store(shareEnded)
}

// rate returns the growth of the share in bytes per second. A receive buffer
// grows with the data received, so this is the rate at which data arrives.
// Budget.mu is held.
func (s *Share) rate(now time.Time) float64 {
	return float64(s.size.Load()) / max(now.Sub(s.since), time.Millisecond).Seconds()
}
