package gateway

import (
	"context"
	"runtime"

	"github.com/execwire/execwire/internal/wsconn"
)

// largeMessage is the size in bytes of a message from which on reading it can
// take milliseconds, and many times its size while it is read.
const largeMessage = wsconn.OwnBytes

// turnstile has large messages of all connections read a few at a time. At once
// they would take no less time together, more memory, and the processors from
// everybody who sends little.
type turnstile struct{ places chan struct{} }

// newTurnstile leaves half of the processors to the others.
func newTurnstile() turnstile {
	return turnstile{places: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))}
}

// pass runs what reads a message of so many bytes, at once if it is small, and
// else when there is a place. It reports false if ctx ended before.
func (t turnstile) pass(ctx context.Context, bytes int, read func()) bool {
	if bytes < largeMessage {
		read()
		return true
	}
	select {
	case t.places <- struct{}{}:
		defer func() { <-t.places }()
		read()
		return true
	case <-ctx.Done():
		return false
	}
}
