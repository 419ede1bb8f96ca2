package client

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

const (
	// DefaultKeepBytes is how much of what all readers have taken a Process keeps
	// in memory for those that come later: 1 MiB.
	DefaultKeepBytes = 1 << 20
	// MaxUntakenBytes is how much that no reader has taken a Process receives ahead,
	// in bytes, with 256 more for each event: 16 MiB, which is more than the windows
	// of a server that has the defaults. Beyond it the process is paced by the
	// connection.
	MaxUntakenBytes = 16 << 20
	// eventBytes is what an event takes besides its output.
	eventBytes = 256
)

// processFeed is what was received of a process, how far it was taken, and by
// whom. What was not taken by all is held; of what was, the end is kept. All
// methods may be called concurrently.
type processFeed struct {
	keep int
	// acks is told what was taken.
	acks *acknowledger
	// room is signalled when there may be room for more; unbounded is closed when
	// none is needed: what comes yet is the rest of a window.
	room      chan struct{}
	unbounded <-chan struct{}

	mu    sync.Mutex
	items []feedItem // guarded by mu; those that are held or kept, oldest first
	// taken is how many of the items were taken. Their size is kept, that of the
	// others untaken; guarded by mu.
	taken         int
	kept, untaken int
	// Behind before the items begin; behind start everything did, and last is where
	// they end. dropped are the bytes from start to before, at most if inexact;
	// guarded by mu.
	start, before, last uint64
	dropped             uint64
	inexact             bool
	readers             map[*feedReader]struct{} // guarded by mu
	// discarding is how many wait without reading; guarded by mu.
	discarding int
	// news is closed when there is any and it is awaited, and replaced; guarded by
	// mu.
	news    chan struct{}
	awaited bool
	// ended is whether nothing more comes, and err why, unless the process has
	// closed; guarded by mu.
	ended bool
	err   error
}

// feedItem is an event of the log, or a gap.
type feedItem struct {
	event *execwirev1.ProcessEvent
	after uint64 // the seq up to which everything is told with it
	size  int
}

// feedReader is where one reader is. It belongs to the feed.
type feedReader struct {
	taken, given uint64
}

func newProcessFeed(afterSeq uint64, keep int, acks *acknowledger, unbounded <-chan struct{}) *processFeed {
	switch {
	case keep == 0:
		keep = DefaultKeepBytes
	case keep < 0:
		keep = 0
	}
	return &processFeed{
		keep: keep, acks: acks, room: make(chan struct{}, 1), unbounded: unbounded, news: make(chan struct{}),
		readers: map[*feedReader]struct{}{}, start: afterSeq, before: afterSeq, last: afterSeq,
	}
}

// add appends an event, after which everything up to after was told. It blocks
// while there is no room, until done, when the stream brings no more, or the process
// is given up, when the end of the stream comes behind what is not read. What was
// received is added in any case.
func (f *processFeed) add(event *execwirev1.ProcessEvent, after uint64, done <-chan struct{}) {
	item := feedItem{event: event, after: after, size: eventBytes + len(event.GetOutput().GetData())}
	for limit := MaxUntakenBytes; !f.push(item, limit); {
		select {
		case <-f.room:
		case <-f.unbounded:
			limit = math.MaxInt
		case <-done:
			limit = math.MaxInt
		}
	}
}

// push appends an item unless more than limit is untaken.
func (f *processFeed) push(item feedItem, limit int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.untaken > limit {
		return false
	}
	f.append(item)
	return true
}

// append is add without waiting. The caller holds mu.
func (f *processFeed) append(item feedItem) {
	f.items = append(f.items, item)
	f.untaken += item.size
	f.last = item.after
	if item.event.GetClosed() != nil {
		// Everything is here now, and nothing of it need be kept there.
		f.acks.taken(f.last, 0, 0, true)
	}
	f.advance()
	f.tell()
}

// tell wakes everybody who waits for news. The caller holds mu.
func (f *processFeed) tell() {
	if f.awaited {
		close(f.news)
		f.news, f.awaited = make(chan struct{}), false
	}
}

// end says that nothing more comes.
func (f *processFeed) end(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended, f.err = true, err
	f.tell()
}

// takenUpTo returns the seq up to which everything was taken by all.
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

// resumed says that a stream began, which may have taken the place of one that was
// to carry acknowledgements.
func (f *processFeed) resumed() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if taken := f.takenSeq(); taken > f.start {
		f.acks.taken(taken, 0, 0, true)
	}
}

// enter begins to read behind a seq. What is before it counts as taken.
func (f *processFeed) enter(seq uint64) *feedReader {
	f.mu.Lock()
	defer f.mu.Unlock()
	seq = min(max(seq, f.start), f.last)
	r := &feedReader{taken: seq, given: seq}
	f.readers[r] = struct{}{}
	f.advance()
	return r
}

// leave ends what enter began. What was given counts as taken.
func (f *processFeed) leave(r *feedReader) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r.taken = r.given
	f.advance()
	delete(f.readers, r)
	f.advance() // the others may be further
}

// discard takes everything while nobody reads, until the returned function is
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

// next blocks until there is an event for a reader, and returns it; nothing when
// the process has closed. What was given before counts as taken.
func (f *processFeed) next(ctx context.Context, r *feedReader) (Event, error) {
	for ctx.Err() == nil {
		event, news, err := f.give(r)
		if news == nil {
			return event, err
		}
		select {
		case <-news:
		case <-ctx.Done():
		}
	}
	return nil, fmt.Errorf("failed to read to the end: %w", context.Cause(ctx))
}

// give returns the next event, or what to wait for.
func (f *processFeed) give(r *feedReader) (Event, <-chan struct{}, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.taken != r.given {
		r.taken = r.given
		f.advance()
	}
	event := f.behind(r.given)
	switch {
	case event != nil:
		r.given = event.After()
		return event, nil, nil
	case !f.ended:
		f.awaited = true
		return nil, f.news, nil
	case f.err != nil && !f.hasClosed():
		return &FailedEvent{Err: f.err, after: r.given}, nil, f.err
	}
	return nil, nil, nil
}

// behind returns the event that follows a seq, or nil. The caller holds mu.
func (f *processFeed) behind(seq uint64) Event {
	if seq < f.before {
		return &GapEvent{FirstAvailableSeq: f.before + 1, DroppedBytes: f.dropped, UpperBound: f.inexact || seq > f.start}
	}
	if i := f.index(seq); i < len(f.items) {
		return newEvent(f.items[i].event)
	}
	return nil
}

// index returns where the first item is that tells what is behind a seq. The caller
// holds mu.
func (f *processFeed) index(seq uint64) int {
	i, _ := slices.BinarySearchFunc(f.items, seq+1, func(item feedItem, seq uint64) int {
		if item.after < seq {
			return -1
		}
		return 1
	})
	return i
}

// advance finds out what is taken by now: what every reader has; without readers
// everything, if somebody waits. The caller holds mu.
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
	f.take(taken)
}

// take says that everything up to a seq is taken. The caller holds mu.
func (f *processFeed) take(seq uint64) {
	bytes, n := 0, 0
	for f.taken < len(f.items) && f.items[f.taken].after <= seq {
		item := f.items[f.taken]
		f.taken++
		f.untaken -= item.size
		f.kept += item.size
		bytes += len(item.event.GetOutput().GetData())
		n++
	}
	if n > 0 && !f.hasClosed() {
		f.acks.taken(f.takenSeq(), bytes, n, false)
	}
	f.evict()
	notify(f.room)
}

// hasClosed reports whether the closed event is here, by which everything was
// acknowledged. The caller holds mu.
func (f *processFeed) hasClosed() bool {
	return len(f.items) > 0 && f.items[len(f.items)-1].event.GetClosed() != nil
}

// evict drops the oldest of what is kept beyond the bound, unless it is the end. That
// is never what a reader has yet to take: more is kept only when all have taken more.
// The caller holds mu.
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
