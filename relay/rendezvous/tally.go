package rendezvous

import "sync"

// tally counts what each principal has. It may be used concurrently.
type tally struct {
	mu sync.Mutex
	of map[string]int // guarded by mu
}

func newTally() *tally { return &tally{of: make(map[string]int)} }

// add counts one more of a principal, unless there are so many already.
func (t *tally) add(principal string, most int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of[principal] >= most {
		return false
	}
	t.of[principal]++
	return true
}

// remove counts one less.
func (t *tally) remove(principal string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of[principal]--; t.of[principal] == 0 {
		delete(t.of, principal)
	}
}
