package wsconn

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// OwnBytes is what every [Share] may have without counting against the budget, so
// that small messages are not rejected because of large ones.
const OwnBytes = 64 << 10

// Budget bounds the bytes that many connections use together. It may be used
// concurrently. A nil Budget is unlimited.
//
// At the limit, no principal and no connection can lock out others. A share that
// stays within its equal part (of the limit among the principals with bytes in
// use, and of that among the shares of its principal) always gets the bytes:
// shares of the heaviest principal are evicted, the slowest of those with at
// least its average size first. A share beyond its equal part gets only the bytes
// of shares below MinRate, of its own principal and of heavier ones.
type Budget struct {
	// Setting is the name of the limit in errors. It must not be changed once
	// there are shares.
	Setting string
	// MinRate is the rate in bytes per second below which a share counts as
	// stalled once the budget is full. 0 means none. It must not be changed once
	// there are shares.
	MinRate int64

	limit int64

	mu       sync.Mutex
	used     int64               // guarded by mu
	accounts map[string]*account // guarded by mu; of principals with bytes in use
}

// account has the shares of one principal. It is guarded by [Budget.mu].
type account struct {
	used   int64
	shares map[*Share]struct{} // shares with bytes that count
}

// NewBudget returns a budget of limit bytes.
func NewBudget(limit int64) *Budget {
	return &Budget{limit: limit, accounts: make(map[string]*account)}
}

// Limit returns the limit in bytes.
func (b *Budget) Limit() int64 { return b.limit }

// Share returns an empty share for a principal. evict is called, from any
// goroutine, when the share was evicted: it is empty and cannot grow any more,
// and its holder must free its memory at once. evict must not block. A share with
// a nil evict is never evicted.
func (b *Budget) Share(principal string, evict func(*BudgetError)) *Share {
	return &Share{budget: b, principal: principal, evict: evict}
}

// resize changes the size of a share, and reports whether the budget allows it.
// The caller calls evict of the evicted shares.
func (b *Budget) resize(s *Share, size int64) (evicted []*Share, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	held := s.size.Load()
	if held == shareEnded {
		return nil, false
	}
	if more := size - held; more > 0 && b.used+more > b.limit {
		if evicted = b.selectVictims(s, more); evicted == nil {
			return nil, false
		}
		for _, victim := range evicted {
			b.set(victim, 0)
			victim.size.Store(shareEnded)
		}
	}
	b.set(s, size)
	return evicted, true
}

// set records the size of a share. mu is held.
func (b *Budget) set(s *Share, size int64) {
	held := max(s.size.Load(), 0)
	if held == 0 || size < held {
		s.since = time.Now()
	}
	s.size.Store(size)
	b.used += size - held
	a := b.accounts[s.principal]
	if a == nil {
		if size == 0 {
			return
		}
		a = &account{shares: make(map[*Share]struct{})}
		b.accounts[s.principal] = a
	}
	a.used += size - held
	if size > 0 {
		a.shares[s] = struct{}{}
	} else if delete(a.shares, s); len(a.shares) == 0 {
		delete(b.accounts, s.principal)
	}
}

// selectVictims returns the shares to evict so that s can grow, or nil if it
// cannot. mu is held.
func (b *Budget) selectVictims(s *Share, more int64) []*Share {
	need := b.used + more - b.limit
	now := time.Now()
	if b.entitled(s, more) {
		return b.heaviest(s, more, need, now)
	}
	return b.stalled(s, more, need, now)
}

// entitled reports whether s stays within its equal part. mu is held.
func (b *Budget) entitled(s *Share, more int64) bool {
	principals, shares := int64(len(b.accounts)), int64(1)
	if own := b.accounts[s.principal]; own == nil {
		principals++
	} else {
		shares = int64(len(own.shares))
		if _, holds := own.shares[s]; !holds {
			shares++
		}
	}
	return s.size.Load()+more <= b.limit/principals/shares
}

// heaviest returns shares of need bytes in total, each the slowest of those of
// the heaviest principal that have at least its average size. mu is held.
func (b *Budget) heaviest(s *Share, more, need int64, now time.Time) []*Share {
	chosen := make(map[*Share]struct{})
	var evicted []*Share
	for need > 0 {
		var victim *Share
		most := int64(-1)
		for principal, a := range b.accounts {
			used, held, holders := a.used, int64(0), int64(0)
			if principal == s.principal {
				used += more
			}
			for other := range a.shares {
				if _, is := chosen[other]; is {
					used -= other.size.Load()
				} else if other != s && other.evict != nil {
					held += other.size.Load()
					holders++
				}
			}
			if used <= most || holders == 0 {
				continue
			}
			most, victim = used, nil
			for other := range a.shares {
				_, is := chosen[other]
				if is || other == s || other.evict == nil || other.size.Load() < held/holders {
					continue
				}
				if victim == nil || other.rate(now) < victim.rate(now) {
					victim = other
				}
			}
		}
		if victim == nil {
			return nil
		}
		chosen[victim] = struct{}{}
		evicted = append(evicted, victim)
		need -= victim.size.Load()
	}
	return evicted
}

// stalled returns shares below MinRate, of need bytes in total, slowest first, of
// the principal of s and of principals that use at least as much as it then does.
// mu is held.
func (b *Budget) stalled(s *Share, more, need int64, now time.Time) []*Share {
	own := more
	if a := b.accounts[s.principal]; a != nil {
		own += a.used
	}
	var slow []*Share
	for principal, a := range b.accounts {
		if principal != s.principal && a.used < own {
			continue
		}
		for other := range a.shares {
			if other != s && other.evict != nil && other.rate(now) < float64(b.MinRate) {
				slow = append(slow, other)
			}
		}
	}
	slices.SortFunc(slow, func(x, y *Share) int { return cmp.Compare(x.rate(now), y.rate(now)) })
	for i, other := range slow {
		if need -= other.size.Load(); need <= 0 {
			return slow[:i+1]
		}
	}
	return nil
}

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

// newError returns the error for a share that cannot grow, or was evicted.
func (b *Budget) newError(evicted bool) *BudgetError {
	return &BudgetError{Setting: b.Setting, Limit: b.limit, Evicted: evicted}
}

// BudgetError means that [Options].Budget has no space for a message, or had to
// evict it. Nothing more can be received; sending works until Close.
type BudgetError struct {
	Setting string // the name of the limit; may be empty
	Limit   int64  // of the budget, in bytes
	Evicted bool   // the message was evicted for others
}

// Reason returns the reason for closing a websocket with this error.
func (e *BudgetError) Reason() string {
	return cmp.Or(e.Setting, "a limit for the messages of all connections") + " is reached: try again later"
}

func (e *BudgetError) Error() string {
	limit := fmt.Sprintf("%d bytes", e.Limit)
	if e.Setting != "" {
		limit += " (" + e.Setting + ")"
	}
	if e.Evicted {
		return "the messages of all connections take " + limit + ": this one arrived slowly and was evicted, send it again later"
	}
	return "the messages of all connections take the maximum of " + limit + ": send it again later"
}
