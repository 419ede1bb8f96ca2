// Package notify wakes goroutines that wait for a change.
package notify

import "context"

// Wait blocks until c is closed or something is received from it, or until ctx ends, whose
// cause it then returns.
func Wait(ctx context.Context, c <-chan struct{}) error {
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// IsClosed reports whether c is closed. Nothing must be sent on it.
func IsClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Signal wakes one goroutine. Calls of Set are merged until the signal is received.
// It may be used concurrently; the zero value is not usable.
type Signal struct{ c chan struct{} }

// NewSignal returns a Signal that is not set.
func NewSignal() Signal { return Signal{c: make(chan struct{}, 1)} }

// Set wakes the goroutine that receives from C, or the next one that does. It does
// not block.
func (s Signal) Set() {
	select {
	case s.c <- struct{}{}:
	default:
	}
}

// Clear resets the signal.
func (s Signal) Clear() {
	select {
	case <-s.c:
	default:
	}
}

// C returns the channel to receive the signal from, which resets it.
func (s Signal) C() <-chan struct{} { return s.c }

// Broadcast wakes all goroutines that wait for a change. The zero value is ready to
// use. It is guarded by the lock of the state whose changes it announces: a waiter
// checks the state and calls Wait without releasing the lock in between, so that no
// change is missed.
type Broadcast struct{ c chan struct{} }

// Wait returns a channel that the next Notify closes.
func (b *Broadcast) Wait() <-chan struct{} {
	if b.c == nil {
		b.c = make(chan struct{})
	}
	return b.c
}

// Notify wakes all waiters. Without waiters it costs nothing.
func (b *Broadcast) Notify() {
	if b.c != nil {
		close(b.c)
		b.c = nil
	}
}
