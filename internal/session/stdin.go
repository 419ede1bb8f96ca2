package session

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
)

// MaxWriteIDs is how many ids of writes are remembered per process.
const MaxWriteIDs = 4096

// MaxWaitingInput is how many bytes of input of its owner may wait for one process, in
// addition to its queue, and how many of others.
const MaxWaitingInput = 4 << 20

// stdin keeps input in order and applies it once. Its lock is a channel, so that
// waiting for it ends with a context.
type stdin struct {
	lock chan struct{} // has an element while a writer holds it

	// accepting is held while input of an owner is accepted and while an ownership ends, so that
	// offset does not change once the next owner has read it.
	accepting sync.Mutex
	offset    atomic.Uint64 // input accepted from owners; written under lock and accepting
	// Bytes of the writers that wait for lock or hold it: owners, so that others cannot use up
	// their share, and all others.
	owners, others atomic.Int64

	remembered atomic.Int64 // approximate memory of seen and seenAge; written under lock

	// guarded by lock
	ended   bool // an owner has ended its input
	seen    map[string]struct{}
	seenAge []string // the ids of seen, oldest first; a ring once it is full
	oldest  int
}

func newStdin() *stdin { return &stdin{lock: make(chan struct{}, 1)} }

// acquire blocks until the caller may write its n bytes, which it adds to waiting. The
// caller must call release.
func (s *stdin) acquire(ctx context.Context, waiting *atomic.Int64, id string, n int) (release func(), err error) {
	if waiting.Add(int64(n)) > MaxWaitingInput {
		waiting.Add(-int64(n))
		return nil, &Error{Kind: StdinQueueFull, Subject: id, Limit: MaxWaitingInput}
	}
	select {
	case s.lock <- struct{}{}:
		return func() {
			waiting.Add(-int64(n))
			<-s.lock
		}, nil
	case <-ctx.Done():
		waiting.Add(-int64(n))
		return nil, context.Cause(ctx)
	}
}

// remember stores an id and forgets the oldest beyond [MaxWriteIDs].
func (s *stdin) remember(id string) {
	if s.seen == nil {
		s.seen = make(map[string]struct{})
	}
	const entry = 64 // in seen and in seenAge, without the id
	s.seen[id] = struct{}{}
	s.remembered.Add(int64(len(id)) + entry)
	if len(s.seenAge) < MaxWriteIDs {
		s.seenAge = append(s.seenAge, id)
		return
	}
	delete(s.seen, s.seenAge[s.oldest])
	s.remembered.Add(-int64(len(s.seenAge[s.oldest])) - entry)
	s.seenAge[s.oldest] = id
	s.oldest = (s.oldest + 1) % MaxWriteIDs
}

// WriteStdinOnce queues input, all or nothing, unless a write with the same non-empty
// id was queued before. It blocks while the queue is full, and behind other writers
// of the same process; when more than [MaxWaitingInput] waits it is kind
// [StdinQueueFull]. The process owns data afterwards.
func (p *Process) WriteStdinOnce(ctx context.Context, id string, data []byte) error {
	release, err := p.stdin.acquire(ctx, &p.stdin.others, p.id, len(data))
	if err != nil {
		return err
	}
	defer release()
	if _, seen := p.stdin.seen[id]; seen {
		return nil
	}
	if err := p.WriteStdin(ctx, data); err != nil {
		return err
	}
	if id != "" {
		p.stdin.remember(id)
	}
	return nil
}

// WriteStdin queues input of the owner that begins at offset, skips what was accepted
// before, and closes stdin after it if end is set. It returns the total of accepted
// bytes. Input that would leave a hole is kind [StdinOffsetInvalid]. It blocks like
// [Process.WriteStdinOnce], and ends with the ownership: kind [OwnerLost], or
// [eventlog.ErrReplaced]. After an error a part of data may have been accepted; the same
// write can be repeated.
func (o *Ownership) WriteStdin(ctx context.Context, offset uint64, data []byte, end bool) (accepted uint64, err error) {
	owned := o.Context()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(owned, func() { cancel(o.writeError()) })()
	p, s := o.process, o.process.stdin
	release, err := s.acquire(ctx, &s.owners, p.id, len(data))
	if err != nil {
		return 0, err
	}
	defer release()
	if owned.Err() != nil { // perhaps before the write began
		return 0, o.writeError()
	}
	before := s.offset.Load()
	if offset > before {
		return before, &Error{Kind: StdinOffsetInvalid, Subject: p.id,
			Detail: fmt.Sprintf("it begins at %d, and %d bytes were accepted", offset, before)}
	}
	for rest := data[min(before-offset, uint64(len(data))):]; len(rest) > 0; {
		n := min(len(rest), p.MaxWrite())
		if err := p.QueueStdin(ctx, rest[:n:n], func() error { return s.accept(owned, n) }); err != nil {
			if owned.Err() != nil {
				err = o.writeError()
			}
			return s.offset.Load(), err
		}
		rest = rest[n:]
	}
	if end && !s.ended {
		if err := p.CloseStdin(ctx); err != nil {
			return s.offset.Load(), err
		}
		s.ended = true
	}
	return s.offset.Load(), nil
}

// accept counts n bytes of an owner, before the process can answer them: the next owner
// continues after them. It fails if the ownership has ended, whose context is owned.
func (s *stdin) accept(owned context.Context, n int) error {
	s.accepting.Lock()
	defer s.accepting.Unlock()
	if owned.Err() != nil {
		return context.Cause(owned)
	}
	s.offset.Add(uint64(n))
	return nil
}

// writeError is the error of a write after the end of the ownership.
func (o *Ownership) writeError() error {
	if err := o.ended(); err != nil {
		return err
	}
	return &Error{Kind: OwnerLost, Subject: o.process.id}
}

// StdinOffset returns the total of bytes accepted from owners. It never blocks.
func (p *Process) StdinOffset() uint64 { return p.stdin.offset.Load() }
