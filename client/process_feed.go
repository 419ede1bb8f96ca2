package client

import (
	"context"
	"fmt"
	"slices"
	"sync"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/notify"
)

// DefaultKeepBytes is how much of what all readers have consumed a Process keeps for later
// readers: 1 MiB.
const DefaultKeepBytes = 1 << 20

// processFeed has the received events of a process and the positions of its readers.
// Events not consumed by all readers are retained; of the others, the newest are kept.
// All methods may be called concurrently.
type processFeed struct {
	id   string // of the process
	keep int
	// acks receives what was consumed.
	acks *acknowledger

	mu    sync.Mutex
	items []feedItem // guarded by mu; retained or kept, oldest first
	// taken is how many of the items were consumed, and kept their size; guarded by mu.
	taken, kept int
	// Events begin after start, items after before, and both end at last. dropped is
	// the number of bytes from start to before, an upper bound if inexact; guarded by
	// mu.
	start, before, last uint64
	dropped             uint64
	inexact             bool
	readers             map[*feedReader]struct{} // guarded by mu
	// discarding counts the waiters that do not read; guarded by mu.
	discarding int
	changed    notify.Broadcast // guarded by mu
	// ended is whether no more events follow, and err the cause, unless the process has
	// closed; guarded by mu.
	ended bool
	err   error
}

// feedItem is an event of the log, or a gap.
type feedItem struct {
	event *execwirev1.ProcessEvent
	after uint64 // the seq after which to continue
	size  int
}

// feedReader is the position of one reader. It belongs to the feed.
type feedReader struct {
	taken, given uint64
}

func newProcessFeed(id string, afterSeq uint64, keep int, acks *acknowledger) *processFeed {
	switch {
	case keep == 0:
		keep = DefaultKeepBytes
	case keep < 0:
		keep = 0
	}
	return &processFeed{
		id: id, keep: keep, acks: acks,
		readers: map[*feedReader]struct{}{}, start: afterSeq, before: afterSeq, last: afterSeq,
	}
}

// add appends an event; after is the seq after which to continue. The acknowledger limits
// what is not consumed.
func (f *processFeed) add(event *execwirev1.ProcessEvent, after uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.items = append(f.items, feedItem{event: event, after: after, size: eventBytes + len(event.GetOutput().GetData())})
	f.last = after
	if event.GetClosed() != nil {
		// Everything was received, and the server need not retain it.
		f.acks.taken(f.id, f.last, 0, 0, true)
	}
	f.advance()
	f.changed.Notify()
}

// end records that no more events follow.
func (f *processFeed) end(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended, f.err = true, err
	f.changed.Notify()
}

// takenUpTo returns the seq up to which all readers have consumed.
func (f *processFeed) takenUpTo() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.takenSeq()
}

func (f *processFeed) takenSeq() uint64 {
	if f.taken == 0 {
		return f.before
	}
	return f.items[f.taken-1].after
}

// addReader adds a reader after a seq. Earlier events count as consumed.
func (f *processFeed) addReader(seq uint64) *feedReader {
	f.mu.Lock()
	defer f.mu.Unlock()
	seq = min(max(seq, f.start), f.last)
	r := &feedReader{taken: seq, given: seq}
	f.readers[r] = struct{}{}
	f.advance()
	return r
}

// removeReader removes a reader. Its last event counts as consumed.
func (f *processFeed) removeReader(r *feedReader) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r.taken = r.given
	f.advance()
	delete(f.readers, r)
	f.advance() // other readers may be further
}

// discard consumes everything while there is no reader, until the returned function is
// called.
func (f *processFeed) discard() func() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.discarding++
	f.advance()
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.discarding--
	}
}

// next blocks until there is an event for a reader, and returns it, or nil when the
// process has closed. The previous event counts as consumed.
func (f *processFeed) next(ctx context.Context, r *feedReader) (Event, error) {
	for ctx.Err() == nil {
		event, changed, err := f.nextFor(r)
		if changed == nil {
			return event, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
	return nil, fmt.Errorf("failed to read to the end: %w", context.Cause(ctx))
}

// nextFor returns the next event, or a channel to wait on.
func (f *processFeed) nextFor(r *feedReader) (Event, <-chan struct{}, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.taken != r.given {
		r.taken = r.given
		f.advance()
	}
	event := f.eventAfter(r.given)
	switch {
	case event != nil:
		r.given = event.After()
		return event, nil, nil
	case !f.ended:
		return nil, f.changed.Wait(), nil
	case f.err != nil && !f.hasClosed():
		return &FailedEvent{Err: f.err, after: r.given}, nil, f.err
	}
	return nil, nil, nil
}

// eventAfter returns the event after a seq, or nil. The caller holds mu.
func (f *processFeed) eventAfter(seq uint64) Event {
	if seq < f.before {
		return &GapEvent{FirstAvailableSeq: f.before + 1, DroppedBytes: f.dropped, UpperBound: f.inexact || seq > f.start}
	}
	if i := f.index(seq); i < len(f.items) {
		return newEvent(f.items[i].event)
	}
	return nil
}

// index returns the first item after a seq. The caller holds mu.
func (f *processFeed) index(seq uint64) int {
	i, _ := slices.BinarySearchFunc(f.items, seq+1, func(item feedItem, seq uint64) int {
		if item.after < seq {
			return -1
		}
		return 1
	})
	return i
}

// advance computes what is consumed: the minimum over all readers or, without readers,
// everything if there are waiters. The caller holds mu.
func (f *processFeed) advance() {
	taken := uint64(0)
	switch {
	case len(f.readers) > 0:
		taken = f.last
		for r := range f.readers {
			taken = min(taken, r.taken)
		}
	case f.discarding > 0:
		taken = f.last
	}
	f.setTaken(taken)
}

// setTaken records that everything up to a seq is consumed. The caller holds mu.
func (f *processFeed) setTaken(seq uint64) {
	bytes, n := 0, 0
	for f.taken < len(f.items) && f.items[f.taken].after <= seq {
		item := f.items[f.taken]
		f.taken++
		f.kept += item.size
		bytes += len(item.event.GetOutput().GetData())
		n++
	}
	if n > 0 && !f.hasClosed() {
		f.acks.taken(f.id, f.takenSeq(), bytes, n, false)
	}
	f.evict()
}

// hasClosed reports whether the closed event was received, with which everything was
// acknowledged. The caller holds mu.
func (f *processFeed) hasClosed() bool {
	return len(f.items) > 0 && f.items[len(f.items)-1].event.GetClosed() != nil
}

// evict drops the oldest kept items beyond the limit, except the last. A reader never
// loses an item that it has not consumed. The caller holds mu.
func (f *processFeed) evict() {
	n := 0
	for f.kept > f.keep && n < f.taken && f.items[n].event.GetClosed() == nil {
		item := f.items[n]
		f.kept -= item.size
		f.before = item.after
		f.inexact = f.inexact || item.event.GetGap().GetUpperBound()
		f.dropped += uint64(len(item.event.GetOutput().GetData())) + item.event.GetGap().GetDroppedBytes()
		n++
	}
	clear(f.items[:n])
	f.items = f.items[n:]
	f.taken -= n
}
