package process

import (
	"context"
	"time"
)

// heldBackPause is how long to wait before looking again at a process whose output waits for its owner.
const heldBackPause = 50 * time.Millisecond

// WaitIdle waits until the process has written nothing for as long as silence, counted from its last output or its
// start, and reports whether that was so before the wait was over. A process that has exited goes on being silent; one
// whose output waits for its owner to take some is not silent. A wait of 0 only looks. It returns the cause of ctx when
// that ends.
func (p *Process) WaitIdle(ctx context.Context, silence, wait time.Duration) (bool, error) {
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		rest := time.Duration(0)
		// In this order: output that was held back a moment ago has been read by the time that it is not any more.
		if p.HeldBack() {
			rest = heldBackPause
		}
		rest = max(rest, silence-time.Since(p.LastOutput()))
		switch {
		case rest <= 0:
			return true, nil
		case ctx.Err() != nil:
			return false, context.Cause(ctx)
		case waiting.Err() != nil:
			return false, nil
		}
		sleep(waiting, rest)
	}
}

// sleep waits for d, or less if ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
