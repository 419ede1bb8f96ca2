package server

import (
	"context"
	"sync"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// maxPosted bounds the answers that wait for a client that does not read. A
// client that asks for more than this without reading loses the oldest.
const maxPosted = 64

// outbox sends on a stream, one message at a time. Events are sent by whoever
// has them and wait for the client; answers are posted and never wait.
type outbox struct {
	stream runStream

	sending  sync.Mutex // held while a message is sent
	lastSeq  uint64     // guarded by mu
	mu       sync.Mutex
	posted   []*execwirev1.RunProcessResponse // guarded by mu
	accepted *uint64                          // guarded by mu; the latest, if not yet sent
	wake     chan struct{}                    // holds one token when something was posted
}

// newOutbox returns an outbox for a client that has everything up to a seq.
func newOutbox(stream runStream, afterSeq uint64) *outbox {
	return &outbox{stream: stream, lastSeq: afterSeq, wake: make(chan struct{}, 1)}
}

// send sends a message and blocks until the stream has taken it.
func (o *outbox) send(m *execwirev1.RunProcessResponse) error {
	o.sending.Lock()
	defer o.sending.Unlock()
	if err := o.stream.Send(m); err != nil {
		return err
	}
	if seq := lastSeq(m.GetEvents().GetEvents()); seq != 0 {
		o.mu.Lock()
		o.lastSeq = seq
		o.mu.Unlock()
	}
	return nil
}

// lastSent is the seq of the last event that was sent, or that the client had
// before.
func (o *outbox) lastSent() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.lastSeq
}

// post queues an answer. It never blocks.
func (o *outbox) post(m *execwirev1.RunProcessResponse) {
	o.mu.Lock()
	if len(o.posted) == maxPosted {
		o.posted = append(o.posted[:0], o.posted[1:]...)
	}
	o.posted = append(o.posted, m)
	o.mu.Unlock()
	o.notify()
}

// postAccepted queues how much input was accepted, in place of what was queued
// of the kind before.
func (o *outbox) postAccepted(offset uint64) {
	o.mu.Lock()
	o.accepted = &offset
	o.mu.Unlock()
	o.notify()
}

func (o *outbox) notify() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// run sends what is posted until ctx ends.
func (o *outbox) run(ctx context.Context) {
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

func (o *outbox) take() []*execwirev1.RunProcessResponse {
	o.mu.Lock()
	defer o.mu.Unlock()
	list := o.posted
	o.posted = nil
	if o.accepted != nil {
		list = append(list, &execwirev1.RunProcessResponse{Message: &execwirev1.RunProcessResponse_StdinAccepted{
			StdinAccepted: &execwirev1.RunStdinAccepted{Offset: *o.accepted}}})
		o.accepted = nil
	}
	return list
}
