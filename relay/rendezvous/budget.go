package rendezvous

import "sync"

// budget bounds the bytes in all queues of a hub. A principal may use as much as
// is free, so that none can take everything: one principal can use a half, two a
// third each, and another one still finds as much. It may be used concurrently.
type budget struct {
	limit int64

	mu          sync.Mutex
	used        int64            // guarded by mu
	byPrincipal map[string]int64 // guarded by mu
}

func newBudget(limit int64) *budget {
	return &budget{limit: limit, byPrincipal: make(map[string]int64)}
}

// reserve reserves bytes for a principal, and reports whether they are available.
// queuedBeside is what is already queued for the same websocket; it reduces what
// is available, so that other websockets of the principal find space.
func (b *budget) reserve(principal string, bytes, queuedBeside int64) bool {
	if bytes == 0 {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if queuedBeside+bytes+b.byPrincipal[principal] > b.limit-b.used {
		return false
	}
	b.used += bytes
	b.byPrincipal[principal] += bytes
	return true
}

func (b *budget) release(principal string, bytes int64) {
	if bytes == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= bytes
	if b.byPrincipal[principal] -= bytes; b.byPrincipal[principal] == 0 {
		delete(b.byPrincipal, principal)
	}
}

// inUse returns the reserved bytes.
func (b *budget) inUse() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}
