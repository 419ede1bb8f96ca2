package eventlog

import (
	"context"
	"slices"
	"sync"

	"github.com/execwire/execwire/internal/notify"
)

// waiter is a goroutine that waits. Its signal lives as long as the waiter, so that
// waiting allocates nothing. If notify is set, it is called instead, and no goroutine
// waits.
type waiter struct {
	ready  func() bool   // called with Log.mu held
	wake   notify.Signal // made when the waiter first waits; set with Log.mu held
	notify func()        // called with Log.mu held
}

// waiters is a list of waiters; guarded by Log.mu. A waiter checked its condition
// under the same lock before it was added, so no wake-up is lost, and only those
// whose condition became true are woken.
type waiters []*waiter

func (ws *waiters) add(w *waiter) {
	if w.wake == (notify.Signal{}) && w.notify == nil {
		w.wake = notify.NewSignal()
	}
	*ws = append(*ws, w)
}

// wake removes and wakes the waiters that are ready.
func (ws *waiters) wake() {
	if len(*ws) == 0 {
		return
	}
	still := (*ws)[:0]
	for _, w := range *ws {
		switch {
		case !w.ready():
			still = append(still, w)
		case w.notify != nil:
			w.notify()
		default:
			w.wake.Set()
		}
	}
	clear((*ws)[len(still):])
	*ws = still
}

// remove removes w from the list, or takes back its wake-up.
func (ws *waiters) remove(w *waiter) {
	if i := slices.Index(*ws, w); i >= 0 {
		*ws = slices.Delete(*ws, i, i+1)
		return
	}
	w.wake.Clear()
}

// await blocks until w, which is on the list, is woken. Log.mu, which is mu, is not held.
func (ws *waiters) await(ctx context.Context, w *waiter, mu *sync.Mutex) error {
	select {
	case <-w.wake.C():
		return nil
	case <-ctx.Done():
		mu.Lock()
		defer mu.Unlock()
		ws.remove(w)
		return context.Cause(ctx)
	}
}
