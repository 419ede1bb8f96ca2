package server

import (
	"context"
	"sync"
)

// maxPosted bounds the answers that wait for a client that does not read. A
// client that asks for more than this without reading loses the oldest.
const maxPosted = 64

// outbox sends on a stream, one message at a time. Events are sent by whoever
// has them and wait for the client; answers are posted and never wait. All
// methods may be called concurrently.
type outbox[M any] struct {
	stream interface{ Send(*M) error }

	sending sync.Mutex // held while a message is sent
	mu      sync.Mutex
	posted  []*M          // guarded by mu
	latest  *M            // guarded by mu; replaces what was posted of its kind before
	wake    chan struct{} // holds one token when something was posted

	flushes  bool           // guarded by mu; between begin and end
	flushing bool           // guarded by mu; the goroutine of flush is there
	flushed  sync.WaitGroup // it
}

func newOutbox[M any](stream interface{ Send(*M) error }) *outbox[M] {
	return &outbox[M]{stream: stream, wake: make(chan struct{}, 1)}
}

// send sends a message and blocks until the stream has taken it.
func (o *outbox[M]) send(m *M) error {
	o.sending.Lock()
	defer o.sending.Unlock()
	return o.stream.Send(m)
}

// post queues an answer. It never blocks.
func (o *outbox[M]) post(m *M) {
	o.mu.Lock()
	if len(o.posted) == maxPosted {
		o.posted = append(o.posted[:0], o.posted[1:]...)
	}
	o.posted = append(o.posted, m)
	o.flush()
	o.mu.Unlock()
	o.notify()
}

// postLatest queues a message of which only the last one matters, in place of
// the one before.
func (o *outbox[M]) postLatest(m *M) {
	o.mu.Lock()
	o.latest = m
	o.flush()
	o.mu.Unlock()
	o.notify()
}

func (o *outbox[M]) notify() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// run sends what is posted until ctx ends.
func (o *outbox[M]) run(ctx context.Context) {
	for {
		for _, m := range o.take() {
			if o.send(m) != nil {
				return
			}
		}
		select {
		case <-o.wake:
		case <-ctx.Done():
			return
		}
	}
}

func (o *outbox[M]) take() []*M {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.takeLocked()
}

// takeLocked is take with mu held.
func (o *outbox[M]) takeLocked() []*M {
	list := o.posted
	o.posted = nil
	if o.latest != nil {
		list = append(list, o.latest)
		o.latest = nil
	}
	return list
}

// begin has what is posted from now on, and what was before, sent by a goroutine
// that is there only while there is something, for streams on which hardly
// anything ever is; in place of run.
func (o *outbox[M]) begin() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.flushes = true
	o.flush()
}

// flush is called with mu held.
func (o *outbox[M]) flush() {
	if !o.flushes || o.flushing || len(o.posted) == 0 && o.latest == nil {
		return
	}
	o.flushing = true
	o.flushed.Go(func() {
		for list := o.next(); len(list) > 0; list = o.next() {
			for _, m := range list {
				if o.send(m) != nil {
					return // the stream has ended: nothing is sent any more
				}
			}
		}
	})
}

// next is take for flush, which is over when there is nothing.
func (o *outbox[M]) next() []*M {
	o.mu.Lock()
	defer o.mu.Unlock()
	list := o.takeLocked()
	o.flushing = len(list) > 0
	return list
}

// end returns when nothing of what was posted is being sent, or will be.
func (o *outbox[M]) end() {
	o.mu.Lock()
	o.flushes = false
	o.mu.Unlock()
	o.flushed.Wait()
}
