package eventlog

import "context"

// waiter is a goroutine that waits. Its channel lives as long as the waiter, so that
// waiting allocates nothing. If notify is set, it is called instead, and no goroutine
// waits.
type waiter struct {
	ready  func() bool   // called with Log.mu held
	wake   chan struct{} // one slot; filled with Log.mu held
	notify func()        // called with Log.mu held
}

// waiters is a list of waiters; guarded by Log.mu. A waiter checked its condition
// under the same lock before it was added, so no wake-up is lost, and only those
// whose condition became true are woken.
type waiters []*waiter

func (ws *waiters) add(w *waiter) {
	if w.wake == nil && w.notify == nil {
		w.wake = make(chan struct{}, 1)
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
		if !w.ready() {
			still = append(still, w)
			continue
		}
		if w.notify != nil {
			w.notify()
			continue
		}
		select {
		case w.wake <- struct{}{}:
		default: // never: a woken waiter takes its wake-up before it waits again
		}
	}
	clear((*ws)[len(still):])
	*ws = still
}

// remove removes w from the list, or takes back its wake-up.
func (ws *waiters) remove(w *waiter) {
	for i, other := range *ws {
		if other == w {
			*ws = append((*ws)[:i], (*ws)[i+1:]...)
			return
		}
	}
	select {
	case <-w.wake:
	default:
	}
}

// await blocks until w, which is on the list, is woken.
func (l *Log) await(ctx context.Context, list *waiters, w *waiter) error {
	select {
	case <-w.wake:
		return nil
	case <-ctx.Done():
		l.mu.Lock()
		defer l.mu.Unlock()
		list.remove(w)
		return context.Cause(ctx)
	}
}
