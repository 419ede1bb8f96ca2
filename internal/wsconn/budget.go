package wsconn

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// OwnBytes is what every [Share] may hold whatever the others do. It does not
// count: who sends little is not refused because others send much.
const OwnBytes = 64 << 10

// Budget bounds what many connections hold together, in bytes. It may be used
// concurrently. A nil one has no bound.
type Budget struct {
	limit int64
	used  atomic.Int64
}

// NewBudget returns a budget of limit bytes.
func NewBudget(limit int64) *Budget { return &Budget{limit: limit} }

// Limit returns the limit in bytes.
func (b *Budget) Limit() int64 { return b.limit }

// take takes what is more, or gives back what is less, and reports whether there
// was so much.
func (b *Budget) take(more int64) bool {
	if b.used.Add(more) <= b.limit || more <= 0 {
		return true
	}
	b.used.Add(-more)
	return false
}

// Share returns a share of the budget that holds nothing yet.
func (b *Budget) Share() *Share { return &Share{budget: b} }

// Share is what one holder has of a [Budget]. All methods may be called
// concurrently. The zero value has no bound.
type Share struct {
	budget *Budget

	mu    sync.Mutex
	taken int64 // guarded by mu
	ended bool  // guarded by mu
}

// Hold makes what the share holds so many bytes, which always succeeds if that is
// less than before. It reports false, and changes nothing, if the budget has not
// that much left.
func (s *Share) Hold(bytes int64) bool {
	if s.budget == nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := max(bytes-OwnBytes, 0)
	if s.ended || !s.budget.take(taken-s.taken) {
		return false
	}
	s.taken = taken
	return true
}

// End gives everything back, for good.
func (s *Share) End() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.budget != nil {
		s.budget.take(-s.taken)
	}
	s.taken, s.ended = 0, true
}

// BudgetError is a message for which [Options].Budget had no room. Nothing more
// can be received; sending still works until Close.
type BudgetError struct {
	Limit int64 // of the budget, in bytes
}

func (e *BudgetError) Error() string {
	return fmt.Sprintf("the messages of all connections together take the %d bytes that they may: send it again later", e.Limit)
}
