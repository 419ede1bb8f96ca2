package rendezvous

import "sync"

// counter counts something per principal. It may be used concurrently.
type counter struct {
	mu          sync.Mutex
	byPrincipal map[string]int // guarded by mu
}

func newCounter() *counter { return &counter{byPrincipal: make(map[string]int)} }

// add increments the count of a principal, unless it has reached limit.
func (c *counter) add(principal string, limit int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byPrincipal[principal] >= limit {
		return false
	}
	c.byPrincipal[principal]++
	return true
}

// remove decrements the count.
func (c *counter) remove(principal string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byPrincipal[principal]--; c.byPrincipal[principal] == 0 {
		delete(c.byPrincipal, principal)
	}
}
