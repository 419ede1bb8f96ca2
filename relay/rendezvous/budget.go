package rendezvous

import "sync"

// budget bounds what waits in all queues of a hub. A principal may have as much as
// is free, so that none takes all: one that takes what it can has a half, of two
// each has a third, and another one still finds as much. It may be used
// concurrently.
type budget struct {
	most int64

	mu   sync.Mutex
	used int64            // guarded by mu
	of   map[string]int64 // guarded by mu; what each principal has of it
}

func newBudget(most int64) *budget { return &budget{most: most, of: make(map[string]int64)} }

// take takes so many bytes more for a principal, and reports whether it may have
// them. beside is what waits already for the same websocket, which leaves as much to
// others of the principal.
func (b *budget) take(principal string, bytes, beside int64) bool {
	if bytes == 0 {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if beside+bytes+b.of[principal] > b.most-b.used {
		return false
	}
	b.used += bytes
	b.of[principal] += bytes
	return true
}

func (b *budget) give(principal string, bytes int64) {
	if bytes == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= bytes
	if b.of[principal] -= bytes; b.of[principal] == 0 {
		delete(b.of, principal)
	}
}

// inUse returns how much is taken.
func (b *budget) inUse() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}
