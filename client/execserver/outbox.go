package execserver

import (
	"context"
	"sync"
)

const (
	// outboxBytes is how much may wait to be sent before requests wait for room.
	outboxBytes = 1 << 20
	// maxOutboxBytes is how much may wait in all.
	maxOutboxBytes = 64 << 20
)

// outbox are messages that wait to be sent over a link.
type outbox struct {
	over context.Context

	mu    sync.Mutex
	queue [][]byte      // guarded by mu
	bytes int           // guarded by mu; of queue
	work  chan struct{} // has a token when there is something to send
	room  chan struct{} // guarded by mu; closed when there is room again
}

func (o *outbox) begin(over context.Context) {
	o.over, o.work, o.room = over, make(chan struct{}, 1), make(chan struct{})
}

// wait blocks until there is room.
func (o *outbox) wait(ctx context.Context) error {
	for {
		o.mu.Lock()
		full, room := o.bytes >= outboxBytes, o.room
		o.mu.Unlock()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case o.over.Err() != nil:
			return context.Cause(o.over)
		case !full:
			return nil
		}
		select {
		case <-room:
		case <-ctx.Done():
		case <-o.over.Done():
		}
	}
}

// add adds a message without waiting for room.
func (o *outbox) add(message []byte) {
	o.mu.Lock()
	o.queue = append(o.queue, message)
	o.bytes += len(message)
	o.mu.Unlock()
	select {
	case o.work <- struct{}{}:
	default:
	}
}

// post is add for what the server makes this end say, and false where that is too
// much.
func (o *outbox) post(message []byte) bool {
	o.mu.Lock()
	full := o.bytes+len(message) > maxOutboxBytes
	o.mu.Unlock()
	if full {
		return false
	}
	o.add(message)
	return true
}

// next waits for a message to send; false if none will be wanted any more.
func (o *outbox) next() ([]byte, bool) {
	for o.over.Err() == nil {
		if message, ok := o.take(); ok {
			return message, true
		}
		select {
		case <-o.work:
		case <-o.over.Done():
		}
	}
	return nil, false
}

func (o *outbox) take() ([]byte, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.queue) == 0 {
		return nil, false
	}
	message := o.queue[0]
	o.queue[0] = nil
	o.queue = o.queue[1:]
	wasFull := o.bytes >= outboxBytes
	o.bytes -= len(message)
	if wasFull && o.bytes < outboxBytes {
		close(o.room)
		o.room = make(chan struct{})
	}
	return message, true
}
