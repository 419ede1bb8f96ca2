package session

import (
	"context"
	"fmt"
	"sync/atomic"
)

// MaxWriteIDs is how many ids of writes are remembered per process.
const MaxWriteIDs = 4096

// MaxWaitingInput is how many bytes of input may wait for one process, in addition to
// its queue.
const MaxWaitingInput = 4 << 20

// stdin keeps input in order and applies it once. Its lock is a channel, so that
// waiting for it ends with a context.
type stdin struct {
	lock chan struct{} // holds one token when nothing is being written

	offset  atomic.Uint64 // input accepted from owners; written under lock
	waiting atomic.Int64  // bytes of the writers that wait for lock or hold it

	remembered atomic.Int64 // approximate memory of seen and seenAge; written under lock

	// guarded by lock
	ended   bool // an owner has ended its input
	seen    map[string]struct{}
	seenAge []string // the ids of seen, oldest first; a ring once it is full
	oldest  int
}

func newStdin() *stdin {
	s := &stdin{lock: make(chan struct{}, 1)}
	s.lock <- struct{}{}
	return s
}

// acquire blocks until the caller may write its n bytes.
func (s *stdin) acquire(ctx context.Context, id string, n int) error {
	if s.waiting.Add(int64(n)) > MaxWaitingInput {
		s.waiting.Add(-int64(n))
		return &Error{Kind: StdinQueueFull, Subject: id, Limit: MaxWaitingInput}
	}
	select {
	case <-s.lock:
		return nil
	case <-ctx.Done():
		s.waiting.Add(-int64(n))
		return context.Cause(ctx)
	}
}

// release lets the next writer write.
func (s *stdin) release(n int) {
	s.waiting.Add(-int64(n))
	s.lock <- struct{}{}
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
	if err := p.stdin.acquire(ctx, p.id, len(data)); err != nil {
		return err
	}
	defer p.stdin.release(len(data))
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

// WriteStdinAt queues input of an owner that begins at offset, skips what was
// accepted before, and closes stdin after it if end is set. It returns the total of
// accepted bytes. Input that would leave a hole is kind [StdinOffsetInvalid]. It
// blocks like [Process.WriteStdinOnce].
func (p *Process) WriteStdinAt(ctx context.Context, offset uint64, data []byte, end bool) (accepted uint64, err error) {
	s := p.stdin
	if err := s.acquire(ctx, p.id, 0); err != nil { // the stdin window bounds an owner
		return 0, err
	}
	defer s.release(0)
	before := s.offset.Load()
	if offset > before {
		return before, &Error{Kind: StdinOffsetInvalid, Subject: p.id,
			Detail: fmt.Sprintf("it begins at %d, and %d bytes were accepted", offset, before)}
	}
	if skip := before - offset; skip < uint64(len(data)) {
		if err := p.WriteStdin(ctx, data[skip:]); err != nil {
			return before, err
		}
		s.offset.Store(offset + uint64(len(data)))
	}
	if end && !s.ended {
		if err := p.CloseStdin(ctx); err != nil {
			return s.offset.Load(), err
		}
		s.ended = true
	}
	return s.offset.Load(), nil
}

// StdinOffset returns the total of bytes accepted from owners. It never blocks.
func (p *Process) StdinOffset() uint64 { return p.stdin.offset.Load() }
