// Package quota counts what each owner has.
package quota

import "sync"

// Counter bounds what each owner has at a time. Its methods may be called concurrently, and do not
// block. The zero value is ready to use, and allows none.
type Counter struct {
	// Most is how much each owner may have. It is set before the first call; later by SetMost.
	Most int

	mu   sync.Mutex     // guards Most, too
	held map[string]int // guarded by mu
}

// Acquire reports whether the owner may have one more, which must be released.
func (c *Counter) Acquire(owner string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held[owner] >= c.Most {
		return false
	}
	if c.held == nil {
		c.held = map[string]int{}
	}
	c.held[owner]++
	return true
}

// SetMost changes how much each owner may have. Owners that have more keep it.
func (c *Counter) SetMost(most int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Most = most
}

// Release gives back one that was acquired.
func (c *Counter) Release(owner string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held[owner]--; c.held[owner] == 0 {
		delete(c.held, owner)
	}
}

// Held returns how much the owner has.
func (c *Counter) Held(owner string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held[owner]
}
