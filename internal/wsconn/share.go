package wsconn

import (
	"sync/atomic"
	"time"
)

// ended is what a share holds for which nothing is to be had any more.
const ended = -1

// Share is what one holder has of a [Budget]. All methods may be called
// concurrently. The zero value has no bound.
type Share struct {
	budget    *Budget
	principal string
	evict     func(*BudgetError) // may be nil

	held  atomic.Int64 // what counts; changed with Budget.mu held
	since time.Time    // guarded by Budget.mu; when it held nothing, or less, last
}

// Hold makes what the share holds so many bytes, which always succeeds if that is
// less than before. It reports false, and changes nothing, if the budget has not
// that much left, or the share has ended or was evicted. It never blocks.
func (s *Share) Hold(bytes int64) bool {
	taken := max(bytes-OwnBytes, 0)
	if s.budget == nil || s.held.Load() == taken {
		return true
	}
	evicted, ok := s.budget.change(s, taken)
	for _, victim := range evicted {
		victim.evict(s.budget.refusal(true))
	}
	return ok
}

// End gives everything back, for good.
func (s *Share) End() {
	if s.budget == nil {
		return
	}
	s.budget.mu.Lock()
	defer s.budget.mu.Unlock()
	s.budget.set(s, 0)
	s.held.Store(ended)
}

// rate returns how fast the share has come to hold what it holds, in bytes per
// second. A buffer grows by what has come, so this is how fast it comes. Budget.mu
// is held.
func (s *Share) rate(now time.Time) float64 {
	return float64(s.held.Load()) / max(now.Sub(s.since), time.Millisecond).Seconds()
}
