package wsconn

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"
)

// OwnBytes is what every [Share] may hold whatever the others do. It does not
// count: a holder of little is not refused because others hold much.
const OwnBytes = 64 << 10

// Budget bounds what many connections hold together, in bytes. It may be used
// concurrently. A nil one has no bound.
//
// When it is full, no principal and no connection locks out the others: a share
// that stays within its equal part (of the limit among the principals that hold
// something, and of that among the shares of its principal) always gets it, and
// the heaviest principal gives way: of its shares that hold no less than its
// average, the slowest one is evicted. A share that wants more than its equal part gets
// what shares below MinRate hold, of its own principal and of heavier ones.
type Budget struct {
	// Setting is the name of the limit for errors. Read-only once there are shares.
	Setting string
	// MinRate is the rate in bytes per second below which a share counts as stalled
	// once the budget is full. 0 is none. Read-only once there are shares.
	MinRate int64

	limit int64

	mu       sync.Mutex
	used     int64               // guarded by mu
	accounts map[string]*account // guarded by mu; of the principals that hold something
}

// account is what one principal holds. It is guarded by [Budget.mu].
type account struct {
	used    int64
	holders map[*Share]struct{} // those that hold something that counts
}

// NewBudget returns a budget of limit bytes.
func NewBudget(limit int64) *Budget {
	return &Budget{limit: limit, accounts: make(map[string]*account)}
}

// Limit returns the limit in bytes.
func (b *Budget) Limit() int64 { return b.limit }

// Share returns a share of the budget for a principal that holds nothing yet. evict
// is called, from any goroutine, when the share was evicted: it holds nothing and gets
// nothing any more, and its holder is to free what it has at once. evict must not
// block. A share with a nil evict is never evicted.
func (b *Budget) Share(principal string, evict func(*BudgetError)) *Share {
	return &Share{budget: b, principal: principal, evict: evict}
}

// change makes what a share holds so many bytes, and reports whether there was so
// much. The caller calls evict of what is evicted.
func (b *Budget) change(s *Share, taken int64) (evicted []*Share, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	held := s.held.Load()
	if held == ended {
		return nil, false
	}
	if more := taken - held; more > 0 && b.used+more > b.limit {
		if evicted = b.choose(s, more); evicted == nil {
			return nil, false
		}
		for _, victim := range evicted {
			b.set(victim, 0)
			victim.held.Store(ended)
		}
	}
	b.set(s, taken)
	return evicted, true
}

// set notes what a share holds. mu is held.
func (b *Budget) set(s *Share, taken int64) {
	held := max(s.held.Load(), 0)
	if held == 0 || taken < held {
		s.since = time.Now()
	}
	s.held.Store(taken)
	b.used += taken - held
	a := b.accounts[s.principal]
	if a == nil {
		if taken == 0 {
			return
		}
		a = &account{holders: make(map[*Share]struct{})}
		b.accounts[s.principal] = a
	}
	a.used += taken - held
	if taken > 0 {
		a.holders[s] = struct{}{}
	} else if delete(a.holders, s); len(a.holders) == 0 {
		delete(b.accounts, s.principal)
	}
}

// choose returns the shares that give way so that s gets more, nil if it does not
// get it. mu is held.
func (b *Budget) choose(s *Share, more int64) []*Share {
	need := b.used + more - b.limit
	now := time.Now()
	if b.entitled(s, more) {
		return b.heaviest(s, more, need, now)
	}
	return b.stalled(s, more, need, now)
}

// entitled reports whether s stays within its equal part with more. mu is held.
func (b *Budget) entitled(s *Share, more int64) bool {
	principals, shares := int64(len(b.accounts)), int64(1)
	if own := b.accounts[s.principal]; own == nil {
		principals++
	} else {
		shares = int64(len(own.holders))
		if _, holds := own.holders[s]; !holds {
			shares++
		}
	}
	return s.held.Load()+more <= b.limit/principals/shares
}

// heaviest returns shares that hold need together, each the slowest of those of
// the heaviest principal that hold no less than its average. mu is held.
func (b *Budget) heaviest(s *Share, more, need int64, now time.Time) []*Share {
	gone := make(map[*Share]struct{})
	var evicted []*Share
	for need > 0 {
		var victim *Share
		most := int64(-1)
		for principal, a := range b.accounts {
			used, held, holders := a.used, int64(0), int64(0)
			if principal == s.principal {
				used += more
			}
			for one := range a.holders {
				if _, is := gone[one]; is {
					used -= one.held.Load()
				} else if one != s && one.evict != nil {
					held += one.held.Load()
					holders++
				}
			}
			if used <= most || holders == 0 {
				continue
			}
			most, victim = used, nil
			for one := range a.holders {
				_, is := gone[one]
				if is || one == s || one.evict == nil || one.held.Load() < held/holders {
					continue
				}
				if victim == nil || one.rate(now) < victim.rate(now) {
					victim = one
				}
			}
		}
		if victim == nil {
			return nil
		}
		gone[victim] = struct{}{}
		evicted = append(evicted, victim)
		need -= victim.held.Load()
	}
	return evicted
}

// stalled returns shares below the rate that hold need together, slowest first, of
// the principal of s and those that hold no less than it then does. mu is held.
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
		for one := range a.holders {
			if one != s && one.evict != nil && one.rate(now) < float64(b.MinRate) {
				slow = append(slow, one)
			}
		}
	}
	slices.SortFunc(slow, func(x, y *Share) int { return cmp.Compare(x.rate(now), y.rate(now)) })
	for i, one := range slow {
		if need -= one.held.Load(); need <= 0 {
			return slow[:i+1]
		}
	}
	return nil
}

// refusal is the error of a share that does not get what it wants, or that is
// evicted.
func (b *Budget) refusal(evicted bool) *BudgetError {
	return &BudgetError{Setting: b.Setting, Limit: b.limit, Evicted: evicted}
}

// BudgetError is a message for which [Options].Budget has no space, or had to
// give it to others. Nothing more can be received; sending still works until
// Close.
type BudgetError struct {
	Setting string // the name of the limit; may be empty
	Limit   int64  // of the budget, in bytes
	Evicted bool   // there was space, and others need it
}

// Reason returns why a websocket is closed for the error.
func (e *BudgetError) Reason() string {
	return cmp.Or(e.Setting, "a limit for the messages of all connections") + " is reached: try again later"
}

func (e *BudgetError) Error() string {
	limit := fmt.Sprintf("%d bytes", e.Limit)
	if e.Setting != "" {
		limit += " (" + e.Setting + ")"
	}
	if e.Evicted {
		return "the messages of all connections together take " + limit + ": this one came slowly and gives way to others, send it again later"
	}
	return "the messages of all connections together take the " + limit + " that they may: send it again later"
}
